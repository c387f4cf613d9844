/*
 * The table of paths. What is not in it answers 404.
 */
#include <string.h>

#include "api/http/http_internal.h"

enum {
    GET_DELETE = METHOD_GET | METHOD_HEAD | METHOD_DELETE,
    GET = METHOD_GET | METHOD_HEAD,
    GET_POST = METHOD_GET | METHOD_HEAD | METHOD_POST,
    POST_PUT = METHOD_POST | METHOD_PUT,
};

static const char label_prefix[] = "/api/v1/label/";
static const char label_suffix[] = "/values";

static const struct route routes[] = {
    {"/api/v1/write", METHOD_POST, RUN_WRITE, true, endpoint_write},
    {"/api/v1/query", GET_POST, RUN_POOL, true, endpoint_query},
    {"/api/v1/query_range", GET_POST, RUN_POOL, true, endpoint_query_range},
    {"/api/v1/query_exemplars", GET_POST, RUN_POOL, true, endpoint_query_exemplars},
    {"/api/v1/format_query", GET_POST, RUN_POOL, true, endpoint_format_query},
    {"/api/v1/parse_query", GET_POST, RUN_POOL, true, endpoint_parse_query},
    {"/api/v1/series", GET_POST, RUN_POOL, true, endpoint_series},
    {"/api/v1/labels", GET_POST, RUN_POOL, true, endpoint_labels},
    {label_prefix, GET, RUN_POOL, true, endpoint_label_values},
    {"/api/v1/metadata", GET, RUN_HERE, true, endpoint_metadata},
    {"/api/v1/rules", GET, RUN_HERE, true, endpoint_rules},
    {"/api/v1/alerts", GET, RUN_HERE, true, endpoint_alerts},
    {"/api/v1/admin/tsdb/delete_series", POST_PUT, RUN_ADMIN, true, endpoint_delete_series},
    {"/api/v1/admin/tsdb/clean_tombstones", POST_PUT, RUN_ADMIN, true, endpoint_clean_tombstones},
    {"/api/v1/admin/tsdb/snapshot", POST_PUT, RUN_ADMIN, true, endpoint_snapshot},
    {"/api/v1/status/buildinfo", GET, RUN_HERE, true, endpoint_buildinfo},
    {"/api/v1/status/runtimeinfo", GET, RUN_HERE, true, endpoint_runtimeinfo},
    {"/api/v1/status/flags", GET, RUN_HERE, true, endpoint_flags},
    {"/api/v1/status/config", GET, RUN_HERE, true, endpoint_config},
    {"/api/v1/status/tsdb", GET, RUN_POOL, true, endpoint_tsdb},
    {"/api/v1/rimstone/cardinality", GET_POST, RUN_POOL, true, endpoint_cardinality},
    {"/api/v1/rimstone/drop_rules", GET_DELETE | METHOD_POST, RUN_ADMIN, true, endpoint_drop_rules,
     true},
    {"/api/v1/rimstone/drop_rules/preview", METHOD_POST, RUN_POOL, true, endpoint_rules_preview,
     true},
    {"/-/reload", POST_PUT, RUN_ADMIN, false, endpoint_reload},
    {"/-/quit", POST_PUT, RUN_HERE, false, endpoint_quit},
    {"/api/v1/rimstone/limits", GET, RUN_HERE, true, endpoint_limits},
    {"/api/v1/rimstone/usage", GET, RUN_POOL, true, endpoint_usage},
    {"/api/v1/rimstone/queries", GET_DELETE, RUN_HERE, true, endpoint_queries},
    {"/api/v1/status/walreplay", GET, RUN_HERE, false, endpoint_walreplay},
    {"/-/healthy", GET, RUN_HERE, false, endpoint_healthy},
    {"/-/ready", GET, RUN_HERE, true, endpoint_ready},
    {"/metrics", GET, RUN_HERE, false, endpoint_metrics},
    {"/", GET, RUN_HERE, false, endpoint_index},
};

enum { ROUTE_COUNT = sizeof routes / sizeof routes[0] };
_Static_assert((int)ROUTE_COUNT <= (int)ROUTE_COUNT_MAX, "ROUTE_COUNT_MAX is too small");

struct str route_path_name(struct str path)
{
    size_t prefix = sizeof label_prefix - 1, suffix = sizeof label_suffix - 1;

    if (path.size <= prefix + suffix || memcmp(path.data, label_prefix, prefix) != 0 ||
        memcmp(path.data + path.size - suffix, label_suffix, suffix) != 0)
        return (struct str){NULL, 0};
    return (struct str){path.data + prefix, path.size - prefix - suffix};
}

const struct route *route_find(struct str path)
{
    bool is_label = route_path_name(path).size != 0;

    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (routes[i].path == label_prefix ? is_label : str_equal(path, str_from(routes[i].path)))
            return &routes[i];
    }
    return NULL;
}

size_t route_count(void)
{
    return ROUTE_COUNT;
}

size_t route_index(const struct route *route)
{
    return route == NULL ? ROUTE_COUNT : (size_t)(route - routes);
}

const char *route_label(size_t index)
{
    if (index >= ROUTE_COUNT)
        return "not_found";
    return routes[index].path == label_prefix ? "/api/v1/label/:name/values" : routes[index].path;
}
