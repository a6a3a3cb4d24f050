#!/usr/bin/env bash
# A federation on this machine: a SuperLink and three SuperNodes on 127.0.0.1, over TLS with a key each, and one run on shares
# of FashionMNIST. Shows the log of the run and stops everything it started: bash deploy/local.sh [FOLDER [OVERRIDE…]]
# FOLDER, new or empty, gets the results. FEDRAGE_DATA names the folder of the data sets (data, beside deploy).
set -euo pipefail
set -m # every process started below leads a group of its own, which can be ended as a whole
here=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$here/outputs/local/$(date +%Y-%m-%d_%H-%M-%S)}
case $output in /*) ;; *) output=$PWD/$output ;; esac
job="strategy=federage dataset=fashion_mnist partition.classes_per_client=4 ram=full num_clients=3 rare_clients=1"
job="$job num_rounds=5 eval_every=5 ${*:2}"
command -v flower-superlink >/dev/null || {
  echo "error: flower-superlink is not on the PATH: activate the environment that fedrage-flwr is installed in" >&2
  exit 1
}

work=$(mktemp -d)
started=()
begin() { # COMMAND…: its output goes to the file that $log names
  "$@" >"$log" 2>&1 &
  started+=($!)
  disown # or bash tells of its end
}
finish() {
  trap - EXIT INT TERM
  for process in ${started[@]+"${started[@]}"}; do kill -TERM -- "-$process" 2>/dev/null || true; done
  for process in ${started[@]+"${started[@]}"}; do
    for _ in {1..50}; do kill -0 -- "-$process" 2>/dev/null && sleep 0.1 || break; done
    kill -KILL -- "-$process" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() { # what went wrong, and the end of every log
  echo "error: $1" >&2
  tail -n 20 "$work"/*.log >&2
  exit 1
}

export FLWR_HOME=$work/home FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1 # seconds; Flower's 1 is for machines with more to do
data=${FEDRAGE_DATA:-$here/data}
case $data in /*) ;; *) data=$PWD/$data ;; esac
export FEDRAGE_DATA=$data
mkdir -p "$FLWR_HOME" "$work/fedrage"
cp -R "$here"/{pyproject.toml,README.md,LICENSE,.gitignore,conf,fedrage_flwr,strategies,clients} "$work/fedrage"
read -r port port0 port1 port2 < <(python3 -c '
import socket
places = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(place.getsockname()[1] for place in places))')
ports=("$port0" "$port1" "$port2")
bash "$here/deploy/keys.sh" "$work/keys" 3 >"$work/keys.log" 2>&1 || fail "the keys could not be made"
printf '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:%s"\nroot-certificates = "%s"\n' \
  "$port" "$work/keys/ca.crt" >"$FLWR_HOME/config.toml"

log=$work/superlink.log begin flower-superlink --host 127.0.0.1 --port "$port" --database "$work/state.db" \
  --disable-runtime-dependency-installation --ssl-ca-certfile "$work/keys/ca.crt" --ssl-certfile "$work/keys/server.pem" \
  --ssl-keyfile "$work/keys/server.key" --enable-supernode-auth
for _ in {1..300}; do
  (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
  kill -0 "${started[0]}" 2>/dev/null || fail "the SuperLink has ended"
  sleep 0.1
done
echo "SuperLink on 127.0.0.1:$port"
for site in 0 1 2; do
  flwr supernode register "$work/keys/site$site.pub" here --name "site$site" >>"$work/register.log" 2>&1 ||
    fail "site $site could not be registered"
  log=$work/site$site.log begin flower-supernode --superlink "127.0.0.1:$port" --port "${ports[$site]}" \
    --root-certificates "$work/keys/ca.crt" --auth-supernode-private-key "$work/keys/site$site" \
    --node-config "partition-id=$site num-partitions=3 state-dir=\"$work/state$site\""
  echo "SuperNode of site $site"
done

# Flower gives 0 back whatever became of the run: the summary is what says that it is finished.
flwr run "$work/fedrage" here --stream --run-config "overrides=\"$job\" output-dir=\"$output\"" || true
[ -f "$output/summary.json" ] || fail "the run has failed"
echo "results in $output"
