"""Which commands there are, without importing any of them."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command: its module in :mod:`ischeduler.cli`, its one line of help, and the section of the help it stands in."""

    module: str
    help: str
    section: str


COMMANDS: dict[str, Entry] = {
    "estimate": Entry("estimate", "Say what a training will need: memory, time, wait, cost.", "Before"),
    "plan": Entry("plan", "List where it could run, how, when it would be done and at what cost.", "Before"),
    "forecast": Entry("forecast", "Say when a job would start, partition by partition.", "Before"),
    "script": Entry("script", "Print a plan as a plain batch script; nothing is submitted.", "Before"),
    "profile": Entry("profile", "Measure a few steps of a training in a short job.", "Before"),
    "calibrate": Entry("calibrate", "Measure this computer for ten seconds, so that step times fit it.", "Before"),
    "submit": Entry("submit", "Delegate a plan; asks first.", "Runs"),
    "status": Entry("status", "Where a run stands.", "Runs"),
    "watch": Entry("watch", "Follow a run live.", "Runs"),
    "top": Entry("top", "All your runs and the clusters, live in the terminal.", "Runs"),
    "why": Entry("why", "Say in words why a run is where it is, and what to do.", "Runs"),
    "logs": Entry("logs", "Print (or follow) what the training printed.", "Runs"),
    "events": Entry("events", "List everything that happened to a run.", "Runs"),
    "cancel": Entry("cancel", "End a run.", "Runs"),
    "move": Entry("move", "Let a run go on elsewhere.", "Runs"),
    "report": Entry("report", "Predicted against actual, and what to ask for next time.", "Runs"),
    "runs": Entry("runs", "List your runs.", "Runs"),
    "init": Entry("init", "Read the cluster at hand and write ischeduler.toml.", "Clusters"),
    "clusters": Entry("clusters", "Known clusters: list, show NAME, sync, edit NAME.", "Clusters"),
    "doctor": Entry("doctor", "Check everything iScheduler needs, with the fix.", "Clusters"),
    "config": Entry("config", "Show settings and where each comes from.", "More"),
    "estimator": Entry("estimator", "Estimators: list, new, check, build, add, compare, promote, roll back.", "More"),
    "sandbox": Entry("sandbox", "A real Slurm on this machine: up, down, status.", "More"),
    "simulate": Entry("simulate", "Replay a job trace under a scheduler: waits, utilisation, queue depth.", "More"),
    "pool": Entry("pool", "Pools of runs over several accelerator types: create, add, status, simulate.", "More"),
    "provisioner": Entry("provisioner", "When to queue the next segment: train --trace FILE, show FILE.", "More"),
    "traces": Entry("traces", "Job traces: list public ones, fetch NAME, show FILE.", "More"),
    "emulate": Entry("emulate", "Run a training as if this machine had a given accelerator.", "More"),
    "plane": Entry("plane", "The Intelligence Plane: run, tick, status.", "More"),
    "agent": Entry("agent", "Act for you here, for a service that cannot reach this cluster; install.", "More"),
    "ingest": Entry("ingest", "Read jobs' events from Kafka or spools into a centre's database.", "More"),
    "serve": Entry("serve", "The centre's service: API and dashboard for many users.", "More"),
    "admin": Entry("admin", "The service's people: key, users, projects, tokens, audit log.", "More"),
    "db": Entry("db", "The database: version, upgrade, backup, restore.", "More"),
    "exec": Entry("exec", "Run a training inside a job: isched exec -- python train.py", "More"),
}
SECTIONS = ("Before", "Runs", "Clusters", "More")
