/*
 * What libmicrohttpd calls (http.c), for server.c to register.
 */
#ifndef RIMSTONE_API_HTTP_HTTP_CALLBACKS_INTERNAL_H
#define RIMSTONE_API_HTTP_HTTP_CALLBACKS_INTERNAL_H

#include <microhttpd.h>
#include <stddef.h>

void connection_changed(void *cls, struct MHD_Connection *connection, void **socket_context,
                        enum MHD_ConnectionNotificationCode how);
void *uri_begin(void *cls, const char *uri, struct MHD_Connection *connection);
enum MHD_Result request_access(void *cls, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **req_cls);
void request_completed(void *cls, struct MHD_Connection *connection, void **req_cls,
                       enum MHD_RequestTerminationCode how);

#endif
