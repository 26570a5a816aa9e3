#!/usr/bin/env bash
# A real node exporter and a real Prometheus server, scraped into a lake.
#
#     bash tests/real/exporters.sh ROOT FOLDER [COMMAND]
#
# ROOT: Debian's packages prometheus-node-exporter and prometheus, unpacked by `dpkg -x`. FOLDER, new: receives
# store and pages. COMMAND: uses the network between the two pages of each, so that counters move. Both
# programs listen on the loopback address alone. What it printed is in docs/reference/interop.md; the pages are
# in tests/ingest/pipeline/recorded.
set -euo pipefail
ROOT=$1 FOLDER=$2
mkdir -p "$FOLDER"
trap 'kill "$EXPORTER" "$SERVER" 2> /dev/null || true' EXIT
# The collectors whose metrics have a column, and one whose have none: no name of this machine is on the page.
"$ROOT/usr/bin/prometheus-node-exporter" --collector.disable-defaults --collector.netdev --collector.loadavg \
  --web.disable-exporter-metrics --web.listen-address=127.0.0.1:19100 2> "$FOLDER/exporter.log" &
EXPORTER=$!
printf 'scrape_configs: [{job_name: node, scrape_interval: 1s, static_configs: [{targets: ["127.0.0.1:19100"]}]}]\n' \
  > "$FOLDER/prometheus.yml"
"$ROOT/usr/bin/prometheus" --config.file="$FOLDER/prometheus.yml" --storage.tsdb.path="$FOLDER/tsdb" \
  --web.listen-address=127.0.0.1:19090 2> "$FOLDER/server.log" &
SERVER=$!
sleep 5
ASKED='http://127.0.0.1:19090/api/v1/query?query=%7B__name__%3D~%22node_network_.%2A_bytes_total%22%7D'
twin --store "$FOLDER/store" ingest --scrape http://127.0.0.1:19100/metrics --name exporter --every-s 1 --for-s 4
twin --store "$FOLDER/store" ingest --scrape "$ASKED" --name server --every-s 1 --for-s 4
twin --store "$FOLDER/store" sql "select dataset, host, count(*) n, count(net_tx_bytes_s) tx, count(net_rx_bytes_s) rx,
  min(net_tx_bytes_s) >= 0 as not_negative from host_samples group by all order by all"
for time in 1 2; do
  curl --silent --fail http://127.0.0.1:19100/metrics > "$FOLDER/node_exporter_$time.prom"
  curl --silent --fail "$ASKED" > "$FOLDER/prometheus_query_$time.json"
  sh -c "${3:-true}" > /dev/null 2>&1
  sleep 3
done
