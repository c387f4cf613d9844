#!/usr/bin/env bash
# Starts the release server with its data in ./data and says what to do next.
# Arguments are passed on, after the defaults, so they win.
set -euo pipefail
cd "$(dirname "$0")/.."
server=build/release/rimstone
listen=127.0.0.1:9440

[ -x "$server" ] || {
    echo "run.sh: $server is not there; run: make build" >&2
    exit 1
}
for argument in "$@"; do
    case $argument in
    --web.listen-address=*) listen=${argument#*=} ;;
    esac
done
cat <<TEXT
Rimstone starts on http://$listen (data in $PWD/data; Ctrl-C stops it).

Send metrics to it, in prometheus.yml (vmagent: -remoteWrite.url=http://$listen/api/v1/write):

    remote_write:
      - url: http://$listen/api/v1/write

Look at them: add a Prometheus data source in Grafana with the URL http://$listen

No agent at hand? Make the metrics of a small GPU fleet:

    build/release/rimtool load --url=http://$listen/api/v1/write

TEXT
exec "$server" --storage.tsdb.path=data --web.listen-address="$listen" "$@"
