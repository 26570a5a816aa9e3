# A Slurm on this machine for the scripts beside it, which source this: a controller, two node daemons of 8
# processors and 4 GPUs (devices of other kinds stand for them) a site, and with DATABASE=yes a MariaDB and slurmdbd, so that sacct has
# something to read. All in the folder $WORK, without munge; everything is stopped by its own id at the end.
#
# In: ROOT (where the packages were unpacked, "" where they are installed), SITES (features of the nodes), PLUGINS
# (lines for slurm.conf), before_controller (a function that puts files into $WORK). Packages: slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, libhwloc15; for the
# plug-in liblua5.1-0; for the database slurmdbd, slurm-wlm-mysql-plugin, mariadb-server-core, mariadb-client-core,
# mariadb-common, libmariadb3, liburing2, libaio1. KEEP: a folder that logs are copied to at the end.
WORK=$(mktemp -d)
LIB=$ROOT/usr/lib/x86_64-linux-gnu
export SLURM_CONF=$WORK/slurm.conf PATH=$ROOT/usr/bin:$PATH
# For the daemons and commands of Slurm alone: what else runs keeps its own libraries.
OF_SLURM=(env "LD_LIBRARY_PATH=$LIB:$LIB/slurm-wlm:$ROOT/lib/x86_64-linux-gnu")
STARTED=()
stop() { # PID, waits up to 10 s, then ends it by force
  kill "$1" 2>/dev/null || return 0
  for _ in $(seq 100); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$1" 2>/dev/null || true
}
stop_all() { # the last one first
  for ((n = ${#STARTED[@]} - 1; n >= 0; n--)); do stop "${STARTED[n]}"; done
  [ -z "${KEEP:-}" ] || cp "$WORK"/*.{log,conf,json} "$KEEP" 2>/dev/null || true
  rm -rf "$WORK"
}
trap stop_all EXIT
background() { # LOG COMMAND...
  local log=$1
  shift
  "$@" > "$WORK/$log" 2>&1 &
  STARTED+=($!)
}
for tool in sbatch squeue sacct sacctmgr scontrol sinfo scancel; do
  eval "$tool() { \"\${OF_SLURM[@]}\" $tool \"\$@\"; }"
done
until_true() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    if ((SECONDS > end)); then echo "not in time: $*" >&2; return 1; fi
    sleep 0.2
  done
}

mkdir -p "$WORK"/{state,spool,bin}
# Slurm asks for the name of its program: under Debian's, which end in -wlm, a controller knows neither GPUs nor
# its database (and ends with a fault).
for name in slurmctld slurmd slurmstepd; do ln -s "$ROOT/usr/sbin/$name-wlm" "$WORK/bin/$name"; done
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
GresTypes=gpu
SchedulerParameters=bf_interval=2,sched_interval=2
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES State=UP
${PLUGINS:-}
CONF
printf 'Name=gpu File=/dev/%s\n' null zero full random > "$WORK/gres.conf"
if [ "${DATABASE:-no}" = yes ]; then
  cat >> "$SLURM_CONF" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
CONF
  cat > "$WORK/slurmdbd.conf" <<CONF
AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=16306
StorageUser=root
PidFile=$WORK/slurmdbd.pid
PluginDir=$LIB/slurm-wlm
CONF
  chmod 600 "$WORK/slurmdbd.conf"
  "${OF_SLURM[@]}" "$ROOT/usr/bin/mariadb-install-db" --no-defaults --user=root --basedir="$ROOT/usr" \
    --datadir="$WORK/database" --auth-root-authentication-method=normal --skip-test-db > "$WORK/install.log" 2>&1
  background database.log "${OF_SLURM[@]}" "$ROOT/usr/sbin/mariadbd" --no-defaults --user=root \
    --datadir="$WORK/database" --socket="$WORK/database.sock" --pid-file="$WORK/database.pid" \
    --bind-address=127.0.0.1 --port=16306 --lc-messages-dir="$ROOT/usr/share/mysql"
  until_true 30 "${OF_SLURM[@]}" mariadb --no-defaults --host=127.0.0.1 --port=16306 --user=root -e "select 1"
  background slurmdbd.log "${OF_SLURM[@]}" "$ROOT/usr/sbin/slurmdbd" -D
  until_true 30 sacctmgr -n list cluster
  sacctmgr -i add cluster trial > "$WORK/cluster.log" 2>&1 || true
fi
PORT=17001
for n in "${!SITES[@]}"; do
  echo "NodeName=n$n[0-1] NodeAddr=127.0.0.1 Port=[$PORT-$((PORT + 1))] CPUs=8 RealMemory=1000 Gres=gpu:4" \
    "Feature=${SITES[n]} State=UNKNOWN" >> "$SLURM_CONF"
  PORT=$((PORT + 2))
done
if declare -F before_controller > /dev/null; then before_controller; fi
background controller.log "${OF_SLURM[@]}" "$WORK/bin/slurmctld" -D -i
until_true 20 sinfo
for n in "${!SITES[@]}"; do
  for node in "n${n}0" "n${n}1"; do
    mkdir -p "$WORK/spool/$node"
    background "$node.log" "${OF_SLURM[@]}" "$WORK/bin/slurmd" -D -N "$node" \
      -d "$WORK/bin/slurmstepd"
  done
done
all_idle() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = $((2 * ${#SITES[@]})) ]; }
until_true 30 all_idle
