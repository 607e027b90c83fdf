"""Faults and changes a site may see, for tests and rehearsals: stop daemons, kill nodes, drain queues, take access away."""

from __future__ import annotations

import re
import signal
import subprocess

from ischeduler.core.errors import BadInput
from ischeduler.sandbox import accounting, daemons, host
from ischeduler.sandbox.errors import SandboxError
from ischeduler.sandbox.machine import RUNNING, SandboxMachine

_ALREADY_DONE = re.compile("Nothing new added|already exists")


class FaultControls(SandboxMachine):
    """Everything an administrator (or bad luck) may do to this Slurm; each call returns when it has taken effect."""

    def stop_slurmctld(self) -> None:
        """Stops the controller; it saves its state first. Clients then say "Unable to contact slurm controller"."""
        self.stop_daemon(daemons.SLURMCTLD)

    def start_slurmctld(self) -> None:
        """Starts the controller from its saved state; waits until it answers and sees every node whose slurmd runs."""
        self.start_daemon(daemons.SLURMCTLD)
        self.await_daemon(daemons.SLURMCTLD, self.controller_answers)
        alive = [n.name for n in self.spec.nodes if self.daemon_state(daemons.slurmd_name(n.name)) == RUNNING]
        self.await_daemon(daemons.SLURMCTLD, lambda: all(self.node_responds(n) for n in alive))

    def stop_slurmdbd(self) -> None:
        """Stops the accounting daemon: sacct fails, slurmctld queues its records."""
        self._require_accounting()
        self.stop_daemon(daemons.SLURMDBD)

    def start_slurmdbd(self) -> None:
        """Starts the accounting daemon and waits until it listens."""
        self._require_accounting()
        self.start_daemon(daemons.SLURMDBD)
        self.await_daemon(daemons.SLURMDBD, lambda: host.listens(self.ports.slurmdbd))

    def kill_slurmd(self, node: str, signum: int = signal.SIGKILL) -> None:
        """Signals a node's slurmd. Its jobs go on running, as on a node cut off from the network (split brain)."""
        self.signal_daemon(daemons.slurmd_name(self.spec.node(node).name), signum)

    def start_slurmd(self, node: str) -> None:
        """Starts a node's slurmd again and waits until the controller sees it."""
        name = daemons.slurmd_name(self.spec.node(node).name)
        self.start_daemon(name)
        self.await_daemon(name, lambda: self.node_responds(node))

    def node_down(self, node: str, reason: str = "sandbox") -> None:
        """Declares a node down at once: its jobs become NODE_FAIL and are requeued where they allow it.

        It is drained first: a node that is only down returns by itself when its slurmd registers (ReturnToService=2).
        """
        self._update_node(node, "State=DRAIN", f"Reason={reason}")
        self._update_node(node, "State=DOWN", f"Reason={reason}")

    def node_resume(self, node: str) -> None:
        """Puts a node that was down or drained back to work and waits until it responds; one that works is left alone."""
        if any(word in self.node_states()[node] for word in ("down", "drain")):
            self._update_node(node, "State=RESUME")
        self.await_daemon(daemons.slurmd_name(node), lambda: self.node_responds(node))

    def drain_node(self, node: str, reason: str = "sandbox") -> None:
        """Lets a node's jobs finish and starts no more."""
        self._update_node(node, "State=DRAIN", f"Reason={reason}")

    def node_states(self) -> dict[str, str]:
        """State of each node as sinfo prints it (``idle``, ``mixed``, ``down*``); the star means it does not respond."""
        lines = self.run([host.program("sinfo"), "-h", "-N", "-o", "%N %T"]).stdout.splitlines()
        return dict(line.split() for line in lines)

    def node_responds(self, node: str) -> bool:
        """Whether the controller has this node registered and reachable."""
        done = self.run([host.program("sinfo"), "-h", "-N", "-n", node, "-o", "%T"], check=False)
        states = done.stdout.split()
        return bool(states) and not any(s.endswith("*") or s.startswith("unk") for s in states)

    def controller_answers(self) -> bool:
        """Whether slurmctld takes requests; clients keep trying for a while when it (or munged) is dead, so with a limit."""
        try:
            return self.run([host.program("sinfo"), "-h", "-o", "%P"], check=False, timeout_s=15.0).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def drain_partition(self, partition: str) -> None:
        """Closes a partition: it takes no new jobs, and those that wait go on waiting."""
        self._update_partition(partition, "DRAIN")

    def undrain_partition(self, partition: str) -> None:
        """Opens a partition again."""
        self._update_partition(partition, "UP")

    def remove_association(self, user: str) -> None:
        """Takes a user's access away (all accounts). Slurm refuses while the user has jobs."""
        self.sacctmgr(accounting.remove_user(self.system_user(user)))

    def add_association(self, user: str) -> None:
        """Gives a user the associations of the spec again."""
        for account in self.spec.accounts:
            if not account.members or user in account.members:
                self.sacctmgr(accounting.add_users([self.system_user(user)], account.name))

    def sacctmgr(self, arguments: list[str]) -> str:
        """``sacctmgr -i ...``; its output. What is there already counts as done."""
        self._require_accounting()
        done = self.run([host.program("sacctmgr"), "-i", *arguments], check=False)
        if done.returncode and not _ALREADY_DONE.search(done.stdout + done.stderr):
            said = (done.stderr.strip() or done.stdout.strip())[-500:]
            raise SandboxError(f"sacctmgr {' '.join(arguments)} failed: {said}")
        return done.stdout

    def token(self, user: str, lifespan_s: int = 3600) -> str:
        """A JSON web token with which ``user`` may talk to slurmrestd (header X-SLURM-USER-TOKEN)."""
        if not self.spec.rest:
            raise BadInput(f"sandbox '{self.name}' has no slurmrestd; start it with rest=True.")
        argv = [host.program("scontrol"), "token", f"username={self.system_user(user)}", f"lifespan={lifespan_s}"]
        return self.run(argv).stdout.strip().removeprefix("SLURM_JWT=")

    def _update_node(self, node: str, *changes: str) -> None:
        self.run([host.program("scontrol"), "update", f"NodeName={self.spec.node(node).name}", *changes])

    def _update_partition(self, partition: str, state: str) -> None:
        names = [p.name for p in self.spec.partitions]
        if partition not in names:
            raise BadInput(f"the sandbox has no partition '{partition}'; expected one of {', '.join(names)}.")
        self.run([host.program("scontrol"), "update", f"PartitionName={partition}", f"State={state}"])

    def _require_accounting(self) -> None:
        if not self.spec.accounting:
            raise BadInput(f"sandbox '{self.name}' runs without accounting; start it with accounting=True.")
