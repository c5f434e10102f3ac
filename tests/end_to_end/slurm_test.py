"""`kvarena submit --slurm` on a Slurm of the test's own: two nodes on this machine, one of which dies in the middle.

    python3 tests/end_to_end/slurm_test.py build/release/bin/kvarena SOURCE_FOLDER

Needs Slurm's daemons and commands (Debian: slurm-wlm) and root, as whom the daemons start jobs; skipped without them.
Runs the program on a random model. Standard library only.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import tiny_model

KVARENA, SOURCE = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
SHARDS = 4
SKIPPED = 77


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """slurmctld and slurmd for nodes a and b, everything in one folder."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, {}
        host = socket.gethostname().split(".")[0]
        nodes = "".join(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 "
                        f"RealMemory=500\n" for name in "ab")
        for sub in ("state", "spool"):
            (folder / sub).mkdir()
        (folder / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n"
            "AuthType=auth/none\nCredType=cred/none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSwitchType=switch/none\nMpiDefault=none\n"
            f"SlurmctldPort={free_port()}\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool/%n\n"
            f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n"
            "ReturnToService=2\nSlurmdTimeout=5\nMinJobAge=3600\n"
            f"{nodes}PartitionName=all Nodes=a,b Default=YES MaxTime=INFINITE State=UP\n")
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1",
                                         "KVARENA_HOME": str(folder)}
        self.start("slurmctld", ["slurmctld", "-D"])
        for node in "ab":
            self.start(node, ["slurmd", "-D", "-N", node])

    def start(self, name, words):
        log = open(self.folder / f"{name}.log", "a")
        self.daemons[name] = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log,
                                              start_new_session=True)

    def kill_node(self, node, jobs=None):
        """As a power cut: the daemon and all that it started, at once."""
        doomed = [self.daemons[node].pid, *(self.started_on(node) if jobs is None else jobs)]
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.daemons[node].wait()
        return len(doomed) - 1

    def started_on(self, node):
        """The steps of the node's jobs and all below them."""
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
            except OSError:  # it has ended
                continue
            parents[int(pid)] = int(text[text.rindex(")") + 2:].split()[1])
        found = set()
        for pid in parents:
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                environment = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
            except OSError:
                continue
            if f"slurmstepd: [" in words and node in self.nodes_of(words) or f"SLURMD_NODENAME={node}\0" in environment:
                found.add(pid)
        while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
            found |= more
        return found

    def nodes_of(self, words):
        job = words.split("[")[1].split(".")[0]
        return self.command("squeue", "-h", "-j", job, "-o", "%N").split()

    def command(self, *words):
        return subprocess.run(words, env=self.environment, capture_output=True, text=True).stdout

    def stop(self):
        for node in "ab":
            self.kill_node(node)
        self.daemons["slurmctld"].terminate()
        self.daemons["slurmctld"].wait(20)


def wait_for(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.25)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def content(cluster, database):
    checks = json.loads(cluster.command(KVARENA, "doctor", "--json", "--database", str(database)))
    found = next(check["found"] for check in checks if check["check"] == "database")
    return found.split("content ")[1]


def samples(database):
    status = subprocess.run([KVARENA, "status", str(database), "--json"], capture_output=True, text=True)
    return json.loads(status.stdout)[0]["evaluations"]["done"] if status.returncode == 0 else 0


def check(cluster, folder):
    config = folder / "config.json"
    config.write_text(json.dumps({
        "name": "sweep", "methods": ["full", {"name": "snapkv", "keep": 0.5}, {"name": "h2o", "keep": 0.5}],
        "engine": {"max_new_tokens": 48, "noise_floor": 0},
        "models": [{"name": "tiny", "path": str(folder / "model"), "dtype": "f32", "template": "none"}],
        "workloads": [{"name": "fact_qa", "things": 3, "filler": 0, "examples": 0, "samples": 240}],
        "output": {"database": str(folder / "merged.db"), "report": str(folder / "merged.html")}}))
    submitted = subprocess.run([KVARENA, "submit", str(config), "--slurm", "--shards", str(SHARDS), "--folder",
                                str(folder / "sweep")], env=cluster.environment, capture_output=True, text=True)
    assert submitted.returncode == 0, submitted.stderr
    print(submitted.stdout, end="")

    part = folder / "sweep" / "shard-0.db"
    wait_for("the first shard's first samples", lambda: samples(part) > 0)
    on = cluster.command("squeue", "-h", "-t", "R", "-r", "-o", "%K %N").splitlines()
    node = next(line.split()[1] for line in on if line.split()[0] == "0")
    before = samples(part)
    jobs = wait_for("a job to be seen on the node that is to die", lambda: cluster.started_on(node), 30)
    killed = cluster.kill_node(node, jobs)
    print(f"killed node {node} and {killed} processes, {before} samples into shard 0")
    wait_for("Slurm to notice", lambda: "down" in cluster.command("sinfo", "-h", "-n", node, "-o", "%t"))
    cluster.start(node, ["slurmd", "-D", "-N", node])

    wait_for("the merge", lambda: not cluster.command("squeue", "-h").strip(), seconds=400)
    restarts = cluster.command("scontrol", "show", "jobs")
    assert "Restarts=1" in restarts, restarts
    assert (folder / "merged.html").exists(), (folder / "sweep" / "merge.log").read_text()
    whole = subprocess.run([KVARENA, "run", str(config), "--quiet", "--database", str(folder / "whole.db")],
                           env=cluster.environment, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    assert content(cluster, folder / "merged.db") == content(cluster, folder / "whole.db")
    assert samples(folder / "merged.db") == 3 * 240
    print("the merged database is that of one run")


def main():
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print("skipped: " + (f"there is no {', '.join(missing)}" if missing else "the daemons start jobs as root only"))
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        tiny_model.write(folder / "model", SOURCE)
        cluster = Cluster(folder)
        try:
            wait_for("both nodes", lambda: cluster.command("sinfo", "-h", "-o", "%D %t").split() == ["2", "idle"])
            check(cluster, folder)
        except AssertionError:
            for log in sorted([*folder.glob("*.log"), *folder.glob("sweep/*.log")]):
                print(f"--- {log.name}\n{log.read_text()[-2000:]}")
            raise
        finally:
            cluster.stop()


main()
