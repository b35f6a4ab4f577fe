#!/bin/bash
# Start SLURM on this machine alone, to try jobs without a cluster. For Debian and its derivatives; run it as root:
#   apt-get install -y --no-install-recommends slurm-wlm munge && bash deploy/slurm/one_node.sh
# It needs neither systemd nor cgroups, so it also works in a container. `one_node.sh stop` ends the daemons again.
set -eu

STATE=/var/lib/slurm/one-node
CONFIGURATION=/etc/slurm/slurm.conf

stop() {
    for daemon in slurmd slurmctld munged; do
        pidfile=$STATE/$daemon.pid
        if [ -f "$pidfile" ]; then kill "$(cat "$pidfile")" 2>/dev/null || true; fi
    done
}

if [ "${1:-}" = stop ]; then stop; exit; fi

if [ -f "$CONFIGURATION" ] && ! grep -q '^ClusterName=one-node$' "$CONFIGURATION"; then
    echo "$CONFIGURATION belongs to another cluster. This script replaces only a file that it wrote." >&2
    exit 1
fi

mkdir -p "$STATE/controller" "$STATE/node" /run/munge /etc/slurm
chown munge: /run/munge
cat > "$CONFIGURATION" <<END
ClusterName=one-node
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=5
ReturnToService=2
StateSaveLocation=$STATE/controller
SlurmdSpoolDir=$STATE/node
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmdPidFile=$STATE/slurmd.pid
SlurmctldLogFile=$STATE/slurmctld.log
SlurmdLogFile=$STATE/slurmd.log
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END

stop
sleep 1
runuser -u munge -- munged --force
cp "$(find /run/munge -name 'munged.pid')" "$STATE/munged.pid"
slurmctld -c
slurmd -c
for _ in $(seq 60); do
    if sinfo --noheader --format=%t 2>/dev/null | grep -q idle; then sinfo; exit; fi
    sleep 1
done
echo "The node is not idle after a minute. Read $STATE/slurmctld.log and $STATE/slurmd.log." >&2
exit 1
