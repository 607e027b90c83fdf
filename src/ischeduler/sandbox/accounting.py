"""What slurmdbd must be told once: the cluster, its QOS, accounts and users. Commands as data."""

from __future__ import annotations

from ischeduler.sandbox.spec import SandboxQos, SandboxSpec
from ischeduler.sandbox.users import system_name


def setup_commands(spec: SandboxSpec, sandbox: str) -> list[list[str]]:
    """Arguments of ``sacctmgr -i``, in order."""
    commands = [["add", "cluster", spec.cluster_name]]
    commands += [_add_qos(q) for q in spec.qos]
    commands += [_allow_preemption(q) for q in spec.qos if q.preempt]
    for account in spec.accounts:
        commands.append(["add", "account", account.name, "Description=sandbox", "Organization=sandbox"])
        members = account.members or spec.users
        if members:
            commands.append(add_users([system_name(u, sandbox) for u in members], account.name))
    accounts = ",".join(a.name for a in spec.accounts)
    commands.append(["add", "user", "root", f"account={spec.accounts[0].name}"])
    if spec.qos:
        names = ",".join(["normal", *(q.name for q in spec.qos)])
        commands.append(["modify", "account", "where", f"name={accounts}", "set", f"qos={names}"])
    return commands


def add_users(names: list[str], account: str) -> list[str]:
    """Gives users an association with an account."""
    return ["add", "user", ",".join(names), f"account={account}"]


def remove_user(name: str) -> list[str]:
    """Takes all of a user's associations away."""
    return ["delete", "user", f"name={name}"]


def _add_qos(qos: SandboxQos) -> list[str]:
    settings = {
        "Priority": qos.priority or None,
        "PreemptMode": qos.preempt_mode or None,
        "MaxWall": qos.max_wall_min,
        "MaxJobsPerUser": qos.max_jobs_per_user,
        "MaxSubmitJobsPerUser": qos.max_submit_per_user,
    }
    return ["add", "qos", qos.name, *(f"{k}={v}" for k, v in settings.items() if v is not None)]


def _allow_preemption(qos: SandboxQos) -> list[str]:
    """A second command, as the QOS it may push out may come later in the list."""
    return ["modify", "qos", "where", f"name={qos.name}", "set", f"Preempt={','.join(qos.preempt)}"]
