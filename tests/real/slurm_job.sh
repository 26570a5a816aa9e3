#!/usr/bin/env bash
# The batch script of `twin export --to slurm`, run by a real Slurm on this machine.
#
#     bash tests/real/slurm_job.sh ROOT FOLDER
#
# ROOT, packages: see slurm_cluster.sh. FOLDER: the export. Needs root. Every task
# prints its rank in place of training; the output is that of the job.
set -euo pipefail
ROOT=$1 FOLDER=$(realpath "$2")
mapfile -t SITES < <(sed -n 's/^#SBATCH --constraint=//p' "$FOLDER/job.sbatch")
source "$(dirname "$0")/slurm_cluster.sh"
mkdir -p "$WORK/job/fake"
install -m 755 "$FOLDER/job.sbatch" "$WORK/job/"
install -m 755 "$FOLDER/task.sh" "$WORK/job/"
printf '#!/bin/sh\necho "rank $RANK local $LOCAL_RANK of $WORLD_SIZE on $SLURMD_NODENAME, master $MASTER_ADDR"\n' \
  > "$WORK/job/fake/python"
chmod 755 "$WORK/job/fake/python"
cd "$WORK/job"
sbatch --test-only job.sbatch
PATH=$WORK/job/fake:$PATH; export PATH
sbatch --wait --output=output job.sbatch
sort -k2n output
