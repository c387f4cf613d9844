/*
 * See annotations_histogram_internal.h.
 */
#include "promql/eval/annotations_histogram_internal.h"

#include "promql/parse/text_internal.h"

enum name_style { NAME_NONE, NAME_QUOTED, NAME_IF_ANY };

static const struct {
    enum annotation_kind kind;
    enum name_style style;
    const char *text;
} table[] = {
    [HISTOGRAM_MIXED_WITH_FLOATS] = {ANNOTATION_WARNING, NAME_QUOTED,
                                     "encountered a mix of histograms and floats for metric name"},
    [HISTOGRAM_MIXED_IN_AGGREGATION] = {ANNOTATION_WARNING, NAME_NONE,
                                        "encountered a mix of histograms and floats for "
                                        "aggregation"},
    [HISTOGRAM_MIXED_BUCKETS] = {ANNOTATION_WARNING, NAME_QUOTED,
                                 "vector contains a mix of histograms with exponential and custom "
                                 "buckets schemas for metric name"},
    [HISTOGRAM_MIXED_WITH_CLASSIC] = {ANNOTATION_WARNING, NAME_IF_ANY,
                                      "vector contains a mix of classic and native histograms"},
    [HISTOGRAM_NOT_COUNTER] = {ANNOTATION_WARNING, NAME_QUOTED,
                               "this native histogram metric is not a counter:"},
    [HISTOGRAM_NOT_GAUGE] = {ANNOTATION_WARNING, NAME_QUOTED,
                             "this native histogram metric is not a gauge:"},
    [HISTOGRAM_IGNORED_IN_RANGE] = {ANNOTATION_INFO, NAME_QUOTED,
                                    "ignored histograms in a range containing both floats and "
                                    "histograms for metric name"},
    [HISTOGRAM_NAN_QUANTILE] = {ANNOTATION_INFO, NAME_IF_ANY,
                                "input to histogram_quantile has NaN observations, result is NaN"},
    [HISTOGRAM_NAN_SKEW] = {ANNOTATION_INFO, NAME_IF_ANY,
                            "input to histogram_quantile has NaN observations, result is skewed "
                            "higher"},
    [HISTOGRAM_NAN_FRACTION] = {ANNOTATION_INFO, NAME_IF_ANY,
                                "input to histogram_fraction has NaN observations, which are "
                                "excluded from all fractions"},
    [HISTOGRAM_HINTS_ADDITION] = {ANNOTATION_WARNING, NAME_NONE,
                                  "conflicting counter resets during histogram addition"},
    [HISTOGRAM_HINTS_SUBTRACTION] = {ANNOTATION_WARNING, NAME_NONE,
                                     "conflicting counter resets during histogram subtraction"},
    [HISTOGRAM_HINTS_AGGREGATION] = {ANNOTATION_WARNING, NAME_NONE,
                                     "conflicting counter resets during histogram aggregation"},
    [HISTOGRAM_BOUNDS_ADDITION] = {ANNOTATION_INFO, NAME_NONE,
                                   "mismatched custom buckets were reconciled during addition"},
    [HISTOGRAM_BOUNDS_SUBTRACTION] = {ANNOTATION_INFO, NAME_NONE,
                                      "mismatched custom buckets were reconciled during "
                                      "subtraction"},
    [HISTOGRAM_BOUNDS_AGGREGATION] = {ANNOTATION_INFO, NAME_NONE,
                                      "mismatched custom buckets were reconciled during "
                                      "aggregation"},
};

enum err histogram_annotate(struct histogram_annotator *a, enum histogram_annotation what,
                            struct errinfo *ei)
{
    const char *between = table[what].style == NAME_QUOTED ? " " : " for metric name ";
    const char *name = "";
    struct arena scratch;
    enum err e;

    if ((a->told >> what) & 1)
        return ERR_OK;
    a->told |= UINT32_C(1) << what;
    arena_init(&scratch, a->annotations->arena->budget);
    if (table[what].style == NAME_NONE ||
        (table[what].style == NAME_IF_ANY && a->metric_name.size == 0))
        between = "";
    else
        name = text_quote(a->metric_name, &scratch);
    e = annotations_add(a->annotations, table[what].kind, a->position, ei, "%s%s%s",
                        table[what].text, between, name);
    arena_done(&scratch);
    return e;
}

enum err annotations_add_ignored(struct annotations *a, struct position_range position,
                                 const char *aggregation, struct errinfo *ei)
{
    return annotations_add(a, ANNOTATION_INFO, position, ei, "ignored histogram in %s aggregation",
                           aggregation);
}

static const char *sample_type(bool is_histogram)
{
    return is_histogram ? "histogram" : "float";
}

enum err annotations_add_incompatible(struct annotations *a, struct position_range position,
                                      const char *op, bool left_is_histogram,
                                      bool right_is_histogram, struct errinfo *ei)
{
    return annotations_add(a, ANNOTATION_INFO, position, ei,
                           "incompatible sample types encountered for binary operator \"%s\": %s "
                           "%s %s",
                           op, sample_type(left_is_histogram), op, sample_type(right_is_histogram));
}
