#!/usr/bin/env bash
# The plug-in of `configs/operations/slurm` in a real Slurm, asking a real `twin serve`; then `squeue --json` and
# `sacct --json` of its jobs as `twin ingest` reads them.
#
#     bash tests/real/slurm_plugin.sh ROOT FOLDER STORE
#
# ROOT, packages: see slurm_cluster.sh; curl and `twin`. FOLDER: an export of `tri-7b` with --to slurm. STORE: a store
# with its links (`twin ingest shipped`). Needs root.
set -euo pipefail
ROOT=$1 FOLDER=$(realpath "$2") STORE=$(realpath "$3") HERE=$(realpath "$(dirname "$0")")
SITES=(us-east-1 eu-west-1 ap-northeast-1) DATABASE=yes
PLUGINS="JobSubmitPlugins=lua"
# The plug-in lies beside slurm.conf, so the folder is known to slurm_cluster.sh alone: it calls this.
before_controller() {
  cp "$HERE/../../configs/operations/slurm/twin_submit.lua" "$WORK/"
  sed -e "s|/etc/slurm/|$WORK/|" -e "s|:8712|:18712|" -e "s|^-- \(twin.*gpus_per_node = \)8|\14|" "$HERE/../../configs/operations/slurm/job_submit.lua" \
    > "$WORK/job_submit.lua"
}
source "$HERE/slurm_cluster.sh"
background serve.log twin --store "$STORE" serve --scenario tri-7b --policy mpc --port 18712
SERVICE=${STARTED[-1]}
until_true 120 curl --silent --fail --noproxy '*' http://127.0.0.1:18712/ready
mkdir "$WORK/jobs" && cd "$WORK/jobs"
milliseconds() { local start=$(date +%s%N); "$@"; echo "  submitted in $((($(date +%s%N) - start) / 1000000)) ms"; }

echo "1. the export, with constraints of its own"
sed -e 's/^srun/true &/' "$FOLDER/job.sbatch" > own.sbatch
milliseconds sbatch --parsable --output=/dev/null own.sbatch
sleep 1
squeue -h --me -o '  %i %t %N %k'
scontrol -o show job | grep -oP '^JobId=[0-9]+|Features=[^ ]+|AdminComment=twin: .*?(?=  )' | sed 's/^/  /'

echo "2. three components that name no domain"
printf '%s\n' '#!/bin/bash' '#SBATCH --comment=twin:qwen3-32b,global_batch=32' '#SBATCH hetjob' \
  '#SBATCH --job-name=second' '#SBATCH hetjob' '#SBATCH --job-name=third' 'sleep 8' > free.sbatch
milliseconds sbatch --parsable --output=/dev/null free.sbatch | tee said
FREE=$(sed -n 1p said)
sleep 4
squeue -h -j "$FREE" -o '  %i %t nodes %N (%D), tasks %C, feature %f, %b'
squeue --json > "$WORK/squeue.json"

echo "3. a job without a marker"
milliseconds sbatch --parsable --output=/dev/null --wrap 'sleep 1' | tee said
scontrol -o show job "$(sed -n 1p said)" | grep -c AdminComment= || true

echo "4. a wrong marker, a model that the service does not know"
milliseconds sbatch --parsable --output=/dev/null --comment 'twin:a,b$(id)' --wrap 'sleep 1'
milliseconds sbatch --parsable --output=/dev/null --comment twin:no-such-model --wrap 'sleep 1'

echo "5. a service that does not answer (stopped by a signal), then asked about again, then gone"
kill -STOP "$SERVICE"
milliseconds sbatch --parsable --output=/dev/null --comment twin:llama2-7b --wrap 'sleep 1'
milliseconds sbatch --parsable --output=/dev/null --comment twin:llama2-7b --wrap 'sleep 1'
kill -CONT "$SERVICE"
stop "$SERVICE"
sed -i 's/pause_s = 30/pause_s = 0/' "$WORK/twin_submit.lua"
touch "$WORK/job_submit.lua" # the controller reads it again
milliseconds sbatch --parsable --output=/dev/null --comment twin:llama2-7b --wrap 'sleep 1'

echo "6. what the controller logged"
grep -o 'twin: .*' "$WORK/controller.log" | sed 's/^/  /'

finished() { [ -z "$(squeue -h)" ]; }
until_true 60 finished
sleep 2
sacct --json > "$WORK/sacct.json"
echo "7. read by twin ingest"
for name in squeue sacct; do
  mkdir "$WORK/$name"
  mv "$WORK/$name.json" "$WORK/$name/"
  twin --store "$WORK/lake" ingest "$WORK/$name/$name.json" 2>&1 | sed -n 's/^rows\|^[0-9,]* rows/  &/p'
  python - "$WORK/lake/lake/jobs/dataset=$name" <<'PYTHON'
import sys
import pyarrow.parquet as parquet
for job in parquet.read_table(sys.argv[1]).to_pylist():
    started = None if job["start_ts"] is None else (job["start_ts"] - job["submit_ts"]).total_seconds()
    print(f"  {job['job_id']}: {job['status']}, {job['gpus']} GPUs, user {job['user']}, started after {started} s")
PYTHON
done
