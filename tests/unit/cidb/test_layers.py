"""Catalog, live system and edits make one cluster, and each fact says which of them it is from."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cidb_samples import DOUBT, GUIDE, NEW, OLD, SEEN, catalog, live

from ischeduler.cidb.combine import combine, same_facts, without_user
from ischeduler.cidb.edits import Override, apply_overrides, changed_paths, check_override
from ischeduler.cidb.provenance import DAY_S, EDITED, is_stale, origin, stale_warnings
from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.core.sizes import GIB

NODE = "v100x2-48c-60g"


def edited(cluster: Cluster, **changes: Any) -> Cluster:
    paths = {path.replace("__", "."): value for path, value in changes.items()}
    return apply_overrides(cluster, [Override(p, check_override(cluster, p, v), "eve", NEW) for p, v in paths.items()])


class TestCombine:
    def test_one_layer_alone_is_itself(self):
        assert combine(catalog(), None) == catalog()
        assert combine(None, live()) == live()
        with pytest.raises(ValueError, match="nothing"):
            combine(None, None)

    def test_the_live_system_decides_what_exists_and_its_limits(self):
        both = combine(catalog(), live())
        assert [p.name for p in both.partitions] == ["gpu", "debug", "fresh"]
        assert [n.name for n in both.node_types] == [NODE]
        assert both.partition("gpu").max_walltime_s == 3600.0
        assert origin(both, "partitions.gpu.max_walltime_s") == SEEN
        assert (both.version, both.accounts, both.as_of) == ("22.05.8", ("research", "other"), NEW)

    def test_prices_and_site_rules_stay_the_catalogs(self):
        both = combine(catalog(), live())
        assert both.charge == catalog().charge
        assert both.partition("gpu").charge_factor == 2.0
        assert not both.partition("debug").chaining_allowed
        assert both.partition("gpu").note == "ask first"
        assert both.centre == "Centre"
        for path in ("charge.usd_per_unit", "partitions.gpu.charge_factor", "partitions.debug.chaining_allowed"):
            assert origin(both, path) == GUIDE

    def test_a_limit_that_slurm_does_not_say_stays_the_catalogs(self):
        both = combine(catalog(), live())
        assert both.partition("gpu").max_gpus_user == 4
        assert origin(both, "partitions.gpu.max_gpus_user") == GUIDE
        assert both.partition("fresh").max_walltime_s is None

    def test_the_catalog_settles_which_card_an_ambiguous_name_means(self):
        both = combine(catalog(), live())
        card = both.node_type(NODE).accelerator
        assert card is not None
        assert (card.name, card.gres) == ("v100-32g", "v100")
        assert origin(both, f"node_types.{NODE}.accelerator") == GUIDE
        assert origin(live(), f"node_types.{NODE}.accelerator.memory_bytes") == DOUBT

    def test_edits_win_over_both(self):
        override = Override("partitions.gpu.max_walltime_s", 60.0, "eve", NEW)
        both = combine(catalog(), live(), [override, Override("partitions.gone.note", "x", "eve", NEW)])
        assert both.partition("gpu").max_walltime_s == 60.0
        source = origin(both, "partitions.gpu.max_walltime_s")
        assert source is not None
        assert (source.confidence, source.as_of, source.source) == (EDITED, NEW, "edited by user eve")

    def test_dates_alone_are_no_change(self):
        later = live(seen=SEEN.__class__(SEEN.source, NEW + 9, SEEN.confidence))
        assert same_facts(combine(catalog(), live()), combine(catalog(), without_user(later))) is False
        assert same_facts(without_user(live()), without_user(later))
        assert not same_facts(without_user(live()), without_user(live(wall_s=60.0)))


class TestEdits:
    @pytest.mark.parametrize(
        ("path", "text", "value"),
        [
            ("charge.usd_per_unit", "0.5", 0.5),
            ("charge.usd_per_unit", "unknown", None),
            ("charge.params.gpu_weight", "12", 12.0),
            ("charge.params.fresh", 1, 1.0),
            ("charge.unit", "SU", "SU"),
            ("partitions.gpu.max_walltime_s", "2d", 172800.0),
            ("partitions.gpu.max_walltime_s", "UNLIMITED", "inf"),
            ("partitions.gpu.max_walltime_s", 90, 90.0),
            ("partitions.gpu.max_memory_bytes", "16G", 16 * GIB),
            ("partitions.gpu.max_nodes", "none", None),
            ("partitions.gpu.chaining_allowed", "no", False),
            ("partitions.gpu.debug", True, True),
            ("partitions.gpu.node_types", "old, newer", ["old", "newer"]),
            ("node_types.old.cores", "44", 44),
            ("node_types.old.accelerator.memory_bytes", "15G", 15 * GIB),
            ("centre", "Elsewhere", "Elsewhere"),
        ],
    )
    def test_values_as_people_write_them(self, path: str, text: Any, value: Any):
        assert check_override(catalog(), path, text) == value
        after = apply_overrides(catalog(), [Override(path, value, "eve", NEW)])
        assert origin(after, path) is not None
        assert not same_facts(after, catalog())

    def test_infinity_and_lists_arrive_typed(self):
        after = edited(catalog(), partitions__gpu__max_walltime_s="unlimited", partitions__gpu__allow_accounts="a,b")
        assert after.partition("gpu").max_walltime_s == math.inf
        assert after.partition("gpu").allow_accounts == ("a", "b")

    def test_another_card_keeps_slurms_name_for_it(self):
        after = edited(catalog(), node_types__old__accelerator="a100-80g")
        card = after.node_type("old").accelerator
        assert card is not None
        assert (card.name, card.gres) == ("a100-80g", "v100")

    @pytest.mark.parametrize(
        ("path", "value", "kind", "words"),
        [
            ("partitions.gpu.max_walltime_s", "soon", BadInput, "not a duration"),
            ("partitions.gpu.max_memory_bytes", "lots", BadInput, "not a memory size"),
            ("partitions.gpu.max_nodes", "two", BadInput, "expected a whole number or 'unknown'"),
            ("partitions.gpu.debug", "maybe", BadInput, "expected yes or no"),
            ("partitions.gpu.debug", None, BadInput, "expected yes or no"),
            ("partitions.gpu.charge_factor", "unknown", BadInput, "expected a number"),
            ("node_types.old.accelerator", "v9000", BadInput, "expected one of a100-40g"),
            ("partitions.gpu.node_types", "old,crate", BadInput, "no node type 'crate'; it has old, newer"),
            ("charge.params", "3", NotFound, "no fact that can be edited"),
            ("partitions.nope.debug", "yes", NotFound, "no partition 'nope'; it has gpu, debug, gone"),
            ("partitions.gpu.colour", "red", NotFound, "no fact that can be edited"),
            ("partitions.gpu.access", "yes", NotFound, "no fact that can be edited"),
            ("partitions.gpu.name", "x", NotFound, "no fact that can be edited"),
            ("default_account", "x", NotFound, "no fact that can be edited"),
            ("partitions", "x", NotFound, "no fact|no partition"),
            ("", "x", NotFound, "no fact"),
        ],
    )
    def test_what_cannot_be_is_one_sentence(self, path: str, value: Any, kind: type[IschedError], words: str):
        with pytest.raises(kind, match=words) as caught:
            check_override(catalog(), path, value)
        assert "\n" not in str(caught.value)

    def test_what_a_person_changed_in_the_text_is_found(self):
        changed = edited(
            catalog(), charge__usd_per_unit=1, charge__params__gpu_weight=5, partitions__gpu__note="new", node_types__old__cores=2
        )
        assert changed_paths(catalog(), catalog()) == {}
        assert changed_paths(catalog(), changed) == {
            "charge.usd_per_unit": 1.0,
            "charge.params.gpu_weight": 5.0,
            "partitions.gpu.note": "new",
            "node_types.old.cores": 2,
        }

    def test_adding_a_partition_is_no_edit(self):
        with pytest.raises(BadInput, match=r"added, renamed or removed \(debug, fresh|gone"):
            changed_paths(catalog(), combine(catalog(), live()))


class TestAge:
    @pytest.mark.parametrize(("kind", "days"), [("catalog", 180), ("live", 7), ("probe", 1), ("snapshot", 300 / DAY_S)])
    def test_each_kind_has_its_age(self, kind: str, days: float):
        assert not is_stale(kind, OLD, OLD + days * DAY_S)
        assert is_stale(kind, OLD, OLD + days * DAY_S + 1)

    def test_an_edit_does_not_age(self):
        assert not is_stale("edit", 0.0, 1e12)

    def test_one_warning_a_source_with_what_to_do(self):
        now = NEW + 8 * DAY_S
        warnings = stale_warnings(combine(catalog(), live()), now)
        assert [(w.kind, w.source) for w in warnings] == [
            ("catalog", "the guide"),
            ("live", "scontrol"),
            ("probe", "sbatch --test-only"),
        ]
        words = [str(w) for w in warnings]
        assert "1050 days old (limit 180 days)" in words[0]
        assert words[1] == "lab: facts from scontrol: 8 days old (limit 7 days); refresh with: isched clusters sync lab"
        assert stale_warnings(live(), NEW) == []
        assert set(warnings[2].paths) == {"partitions.gpu.access", "partitions.debug.access"}
