#include "api/server.h"

const char api_version[] = RIMSTONE_VERSION;
/* The build metadata keeps it a semantic version that compares as the API level it names. */
const char api_prometheus_version[] = "3.0.0+rimstone." RIMSTONE_VERSION;
