#!/usr/bin/env bash
# The batch script of `twin export --to slurm`, run by a real Slurm on this machine.
#
#     bash tests/real/slurm_job.sh ROOT FOLDER
#
# ROOT: where the packages slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and libhwloc15 were unpacked
# (`apt-get download`, `dpkg -x`); "" where they are installed. FOLDER: the export. Needs root. A controller and two
# node daemons a domain start in a folder of their own, without munge; nodes have no GPUs here, so that line is left
# out. Every task prints its rank in place of training; the output is that of the job.
set -euo pipefail
ROOT=$1 FOLDER=$(realpath "$2") WORK=$(mktemp -d)
LIB=$ROOT/usr/lib/x86_64-linux-gnu
export SLURM_CONF=$WORK/slurm.conf LD_LIBRARY_PATH=$LIB:$LIB/slurm-wlm PATH=$ROOT/usr/bin:$PATH
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$WORK"' EXIT
mkdir -p "$WORK"/{state,spool,job/fake}
mapfile -t SITES < <(sed -n 's/^#SBATCH --constraint=//p' "$FOLDER/job.sbatch")
cat > "$SLURM_CONF" <<CONF
ClusterName=trial
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/none
CredType=cred/none
PluginDir=$LIB/slurm-wlm
SlurmUser=root
SlurmctldPort=16817
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool/%n
SlurmctldPidFile=$WORK/controller.pid
SlurmdPidFile=$WORK/spool/%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=2,sched_interval=2
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
PORT=17001
for n in "${!SITES[@]}"; do
  echo "NodeName=n$n[0-1] NodeAddr=127.0.0.1 Port=[$PORT-$((PORT + 1))] CPUs=8 RealMemory=1000" \
    "Feature=${SITES[n]} State=UNKNOWN" >> "$SLURM_CONF"
  PORT=$((PORT + 2))
done
"$ROOT"/usr/sbin/slurmctld* -D -i > "$WORK/controller.log" 2>&1 &
sleep 2
for n in "${!SITES[@]}"; do
  for node in "n${n}0" "n${n}1"; do
    mkdir -p "$WORK/spool/$node"
    "$ROOT"/usr/sbin/slurmd-wlm -D -N "$node" -d "$ROOT/usr/sbin/slurmstepd-wlm" > "$WORK/$node.log" 2>&1 &
  done
done
sleep 4
sed '/--gpus-per-node/d' "$FOLDER/job.sbatch" > "$WORK/job/job.sbatch"
install -m 755 "$FOLDER/task.sh" "$WORK/job/"
printf '#!/bin/sh\necho "rank $RANK local $LOCAL_RANK of $WORLD_SIZE on $SLURMD_NODENAME, master $MASTER_ADDR"\n' \
  > "$WORK/job/fake/python"
chmod 755 "$WORK/job/fake/python"
cd "$WORK/job"
sbatch --test-only job.sbatch
PATH=$WORK/job/fake:$PATH sbatch --wait --output=output job.sbatch
sort -k2n output
