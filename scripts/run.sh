#!/usr/bin/env bash
# Starts the release server with its data in ./data and says what to do next.
# Arguments are passed on, after the defaults, so they win.
set -euo pipefail
cd "$(dirname "$0")/.."
server=build/release/rimstone
listen=127.0.0.1:9440
data=data

[ -x "$server" ] || {
    echo "run.sh: $server is not there; run: make build" >&2
    exit 1
}
for argument in "$@"; do
    case $argument in
    --web.listen-address=*) listen=${argument#*=} ;;
    --storage.tsdb.path=*) data=${argument#*=} ;;
    esac
done
shown=$listen # where a client on this machine finds it
[ -n "${listen%:*}" ] || shown=127.0.0.1$listen
cat <<TEXT
Rimstone starts on http://$shown (data in $(realpath -m "$data"); Ctrl-C stops it).

Send metrics to it, in prometheus.yml (vmagent: -remoteWrite.url=http://$shown/api/v1/write):

    remote_write:
      - url: http://$shown/api/v1/write

Look at them: add a Prometheus data source in Grafana with the URL http://$shown

No agent at hand? Make the metrics of a small GPU fleet:

    build/release/rimtool load --url=http://$shown/api/v1/write

TEXT
exec "$server" --storage.tsdb.path="$data" --web.listen-address="$listen" "$@"
