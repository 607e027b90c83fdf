"""The plan page as people read it."""

from __future__ import annotations

from helper_builders import HOUR, plan, planset, seconds, workload

from ischeduler.core.cluster import Accelerator, Cluster, NodeType
from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import GIB
from ischeduler.helper.plan_text import done_in, money, plan_lines

PITZER = Cluster(
    "pitzer",
    node_types=(NodeType("gpu-node", 48, 384 * GIB, Accelerator("v100-32g", 32 * GIB), 2), NodeType("cpu-node", 48, 192 * GIB)),
)


def test_the_page() -> None:
    assert plan_lines(planset(), {"pitzer": PITZER}) == [
        "Workload  resnet50 · batch 32 · 50 epochs · 20,000 samples · checkpoints: yes",
        " #  WHERE       MEMORY        RUN (p50–p90)  WAIT (p50–p90)  DONE IN  COST    HOW",
        " 1  pitzer/cpu  4/192 GB      9h00–11h15     0s              9h00     $0.756  1 job  ✔ soonest",
        " 2  pitzer/gpu  24/32 GB gpu  2h00–2h30      26h00           28h00    $0.348  1 job  cheapest, ideal",
        "    pitzer/gpu  does not fit: needs 41 GB, card has 32 GB, 9 GB more needed",
        "                → batch 48 fits, or --grad-accum 2",
        "    pitzer/hugemem  refused: account not permitted",
        "Estimators: memory=trace@1",
        "Goal: soonest (--goal cheapest|fewest-interruptions|deadline=...|budget=...).",
    ]


def test_several_batches_show_a_column_and_refusals_say_which() -> None:
    both = planset(workload=workload(batch_size=(32, 64)), plans=(plan(1), plan(2, workload=workload(batch_size=64))))
    page = plan_lines(both)
    assert page[1].split()[:3] == ["#", "WHERE", "BATCH"]
    assert "    pitzer/gpu (batch 64)  does not fit: needs 41 GB, card has 32 GB, 9 GB more needed" in page


def test_hidden_options_are_counted_and_shown_on_request() -> None:
    many = planset(plans=tuple(plan(i + 1, f"p{i}", hidden=i > 2) for i in range(12)))
    assert "9 hidden: isched plan --all" in plan_lines(many)[-1]
    assert len([ln for ln in plan_lines(many, everything=True) if "pitzer/p" in ln]) == 12


def test_a_tagged_option_is_never_hidden() -> None:
    many = planset(plans=tuple(plan(i + 1, f"p{i}", tags=("ideal",) if i == 11 else ()) for i in range(12)))
    assert any("pitzer/p11" in ln for ln in plan_lines(many))


def test_a_cascade_says_how() -> None:
    page = plan_lines(planset(plans=(plan(1, "gpudbg", run_h=3, segments=3, tags=("goal",)),)))
    assert "3 x 1h00 cascade" in page[2]


def test_a_wide_interval_is_marked() -> None:
    assert done_in(seconds(10 * HOUR)) == "10h00"
    assert done_in(Estimate(8 * HOUR, 10 * HOUR, 14 * HOUR, "s", "t")) == "~10h00"


def test_money() -> None:
    assert money(Estimate.exact(0.3484, "usd", "t")) == "$0.348"
    assert money(Estimate.exact(1234.5, "usd", "t")) == "$1,234.50"
    assert money(Estimate.exact(12.5, "SU", "t")) == "12.5 SU"
