"""Discovery asks few questions, prefers JSON where there is any, and says unknown where nobody answers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import slurm_json_samples as samples

from ischeduler.cidb.access import PROBE_AGE_S, refusal_words
from ischeduler.cidb.discovery import discover
from ischeduler.cidb.provenance import LIVE, origin
from ischeduler.core.errors import BatchUnavailable

RECORDED = Path(__file__).parent / "recorded"
CONFIG = (RECORDED / "config-22.05.txt").read_text()
NOW = 1_800_000_000.0
REFUSED = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"


class Cluster:
    """Answers by the beginning of the question; the most specific one counts."""

    def __init__(self, answers: Mapping[str, str | tuple[int, str]], **more: str) -> None:
        self.answers = {
            "scontrol show config": CONFIG,
            "scontrol -a -o show partition": (RECORDED / "partitions-22.05.txt").read_text(),
            "scontrol -a -o show node": (RECORDED / "nodes-22.05.txt").read_text(),
            "sacctmgr -nP show assoc": "research||normal|normal,high||10\nother||||5|3\n",
            "sacctmgr -nP show qos": "normal||gres/gpu=2||\npart_limits|1-00:00:00|||7\n",
            "sacctmgr -nP show user": "research\n",
            "sbatch --test-only": (0, ""),
            **answers,
        }
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        line = " ".join(argv)
        self.asked.append(line)
        for key in sorted(self.answers, key=len, reverse=True):
            if line.startswith(key):
                answer = self.answers[key]
                code, text = answer if isinstance(answer, tuple) else (0, answer)
                return subprocess.CompletedProcess(list(argv), code, text if code == 0 else "", "" if code == 0 else text)
        raise FileNotFoundError(argv[0])


def test_everything_at_once():
    found = discover(Cluster({"sbatch --test-only --partition=closed": (1, REFUSED)}), "alice", NOW)
    assert (found.name, found.version, found.as_of) == ("testbed", "22.05.8", NOW)
    assert found.accounts == ("research", "other")
    assert found.default_account == "research"
    assert found.user_max_submit == 10
    assert found.partition("gpu").max_gpus_user == 2
    assert found.partition("quiet").max_walltime_s == 86400.0
    closed = found.partition("closed").access
    assert closed is not None
    assert (closed.allowed, closed.reason) == (False, "Invalid account or account/partition combination specified")
    for path, words in (("partitions.gpu.max_nodes", "scontrol"), ("partitions.gpu.max_gpus_user", "sacctmgr")):
        source = origin(found, path)
        assert source is not None
        assert words in source.source
        assert (source.confidence, source.as_of) == (LIVE, NOW)


def test_the_number_of_questions_does_not_grow_with_nodes():
    cluster = Cluster({})
    found = discover(cluster, "alice", NOW)
    probes = [a for a in cluster.asked if a.startswith("sbatch")]
    assert len(probes) == len(found.partitions)
    assert len(cluster.asked) - len(probes) == 6


def test_a_probe_asks_for_a_card_where_there_are_some_and_for_the_least_nodes():
    cluster = Cluster({})
    discover(cluster, "alice", NOW)
    gpu = next(a for a in cluster.asked if "--partition=gpu " in a)
    assert "--gres=gpu:1" in gpu
    assert "--account=research" in gpu
    assert "--gres" not in next(a for a in cluster.asked if "--partition=cpu " in a)
    assert "--nodes=2" in next(a for a in cluster.asked if "--partition=quiet " in a)


def test_accounting_off_is_unknown_and_not_asked():
    off = CONFIG.replace("accounting_storage/slurmdbd", "accounting_storage/none")
    cluster = Cluster({"scontrol show config": off})
    found = discover(cluster, "alice", NOW)
    assert (found.accounts, found.default_account, found.user_max_submit) == ((), None, None)
    assert found.partition("gpu").max_gpus_user is None
    assert not [a for a in cluster.asked if a.startswith("sacctmgr")]
    assert found.partition("cpu").access is not None


@pytest.mark.parametrize("trouble", [(1, "sacctmgr: error: Sending PersistInit msg: Connection refused"), (0, "garbage")])
def test_accounting_that_does_not_answer_is_unknown(trouble: tuple[int, str]):
    found = discover(
        Cluster({"sacctmgr": trouble, **dict.fromkeys(("sacctmgr -nP show assoc", "sacctmgr -nP show qos"), trouble)}),
        "alice",
        NOW,
    )
    assert found.accounts == ()
    assert found.partition("gpu").max_gpus_user is None


def test_access_is_kept_for_an_hour_for_the_same_account():
    first = discover(Cluster({}), "alice", NOW)
    cluster = Cluster({})
    again = discover(cluster, "alice", NOW + PROBE_AGE_S - 1, known=first)
    assert not [a for a in cluster.asked if a.startswith("sbatch")]
    assert [p.access for p in again.partitions] == [p.access for p in first.partitions]
    discover(cluster, "alice", NOW + 1, known=first, account="other")
    assert [a for a in cluster.asked if a.startswith("sbatch") and "--account=other" in a]


@pytest.mark.parametrize(
    "words",
    [
        "allocation failure: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "allocation failure: Required partition not available (inactive or drain)",
    ],
)
def test_a_refusal_that_is_not_about_the_user_leaves_access_unknown(words: str):
    assert discover(Cluster({"sbatch --test-only": (1, words)}), "alice", NOW).partition("cpu").access is None


def test_a_silent_controller_is_unavailable_never_a_refusal():
    silent = (1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)")
    with pytest.raises(BatchUnavailable, match="did not answer"):
        discover(Cluster({"sbatch --test-only": silent}), "alice", NOW)
    with pytest.raises(BatchUnavailable, match="scontrol show config"):
        discover(Cluster({"scontrol show config": (1, "slurm_load_ctl_conf error: Unable to contact")}), "alice", NOW)


def test_without_slurms_commands_it_says_where_to_go():
    def nothing(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError(argv[0])

    with pytest.raises(BatchUnavailable, match="login node"):
        discover(nothing, "alice", NOW)


@pytest.mark.parametrize("parser", ["v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42"])
def test_a_newer_slurm_is_read_by_json(parser: str):
    newer = CONFIG.replace("22.05.8", "24.05.4")
    text = "PartitionName=gpu AllowAccounts=ALL QoS=part_limits MaxTime=1:00:00 Hidden=YES OverSubscribe=EXCLUSIVE State=UP Nodes=g[01-02]\n"
    cluster = Cluster(
        {
            "scontrol show config": newer,
            "scontrol -a -o show partition": text,
            "scontrol -a --json show nodes": samples.nodes(parser),
            "scontrol -a --json show partitions": samples.partitions(parser),
        }
    )
    found = discover(cluster, "alice", NOW, probe=False)
    gpu = found.partition("gpu")
    assert "scontrol -a -o show node" not in cluster.asked
    assert (gpu.min_nodes, gpu.max_nodes, gpu.max_walltime_s) == (2, 4, 86400.0)
    assert gpu.whole_node
    assert gpu.note.startswith("hidden")
    assert gpu.node_types == tuple(n.name for n in found.node_types)


@pytest.mark.parametrize("answer", [(1, "unrecognized option"), "not json", '{"nodes": {}}'])
def test_json_that_is_not_understood_falls_back_to_text(answer: str | tuple[int, str]):
    newer = CONFIG.replace("22.05.8", "25.11.0")
    found = discover(Cluster({"scontrol show config": newer, "scontrol -a --json": answer}), "alice", NOW, probe=False)
    assert {n.name for n in found.node_types} == {"cpu-16c-31g", "v100x2-8c-16g", "gpux4-62c-503g"}


def test_refusals_lose_their_prefixes():
    assert refusal_words(REFUSED) == "Invalid account or account/partition combination specified"
    assert refusal_words("allocation failure: Access/permission denied") == "Access/permission denied"
    assert refusal_words("") == "refused without a word"
