"""A sample of the damaged bytes; `make corruption-test` damages all."""

from __future__ import annotations

import pytest

from bookie_server.core import index_format, ledger_state, record_codec
from bookie_server.core.manifest_codec import Manifest, decode_manifest
from bookie_server.core.replay_decision import judge as judge_scan
from bookie_server.storage import open_files
from bookie_server.storage.modes import redo
from ledgerlog_spark.wire.digests import crc32c
from tests.corruption.__main__ import total
from tests.corruption.cookies import judge_cookies
from tests.corruption.damage import KINDS, TRUNCATED, Case
from tests.corruption.judge import Verdict, judge
from tests.corruption.plan import ROLES, cases, play_cases, portions, sample
from tests.corruption.scenarios import scenario

SAMPLE = 500
CASES_MIN = 100_000


def test_the_whole_run_has_enough_cases_of_each_file_and_kind() -> None:
    assert sum(len(cases(name)) for name in ROLES) >= CASES_MIN
    for name, roles in ROLES.items():
        made = scenario(name)
        found = {(made.roles[case.file], case.kind) for case in cases(name)}
        assert found == {(role, kind) for role in roles for kind in KINDS}
    assert {name for name, _ in portions()} == {*ROLES, "cookie"}


@pytest.mark.parametrize("name", ROLES)
def test_an_intact_directory_answers_everything(name: str) -> None:
    assert judge(scenario(name), None) == (Verdict.HARMLESS, "")


def test_no_damage_of_the_sample_leads_to_a_wrong_answer() -> None:
    counts, wrong = play_cases(sample(1, SAMPLE))
    assert wrong == []
    assert counts.total() >= SAMPLE * 0.9
    assert total(counts, verdict="harmless") > 0
    assert total(counts, verdict="detected") > SAMPLE // 3


def test_no_damage_of_the_cookie_is_accepted() -> None:
    verdicts = judge_cookies()
    assert [why for _, verdict, why in verdicts if verdict is Verdict.WRONG] == []
    assert {verdict for _, verdict, _ in verdicts} == {Verdict.HARMLESS, Verdict.DETECTED}


def test_a_journal_file_that_was_cut_is_refused() -> None:
    """The first run of all cases found this: the lost copies looked as if never written."""
    made = scenario("journal")
    [first, *_] = sorted(made.journal)
    case = Case("journal", first, 1_024, TRUNCATED)
    assert judge(made, case) == (Verdict.DETECTED, "DamagedDirectoryError")


def wrong_cases(role: str, name: str = "killed") -> int:
    made = scenario(name)
    of_role = [case for case in cases(name) if made.roles[case.file] == role]
    counts, _ = play_cases(of_role[:: max(1, len(of_role) // 400)])
    return total(counts, verdict="wrong")


class TestMutations:
    """Without one of the checks, the damage is accepted, and the run detects this."""

    def test_bodies_without_checksums(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unchecked(*_: object) -> None:
            """Compare nothing."""

        monkeypatch.setattr("bookie_server.storage.replay.check_chunks", unchecked)
        monkeypatch.setattr("bookie_server.storage.files.entry_log_file.check_chunks", unchecked)
        assert wrong_cases("open entry log") > 0

    @pytest.mark.parametrize(
        ("module", "role"),
        [
            (record_codec, "open entry log"),
            (index_format, "entry log, index"),
            (ledger_state, "ledger states"),
        ],
        ids=["headers", "indexes", "states"],
    )
    def test_checksums_that_always_fit(
        self, module: object, role: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Fitting(int):
            """A checksum that equals every other one."""

            __hash__ = int.__hash__

            def __eq__(self, other: object) -> bool:
                return True

            def __ne__(self, other: object) -> bool:
                return False

        scenario("killed")
        real = module.crc32c  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "crc32c", lambda *given: Fitting(real(*given)))
        assert wrong_cases(role) > 0

    def test_a_manifest_without_a_checksum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def trusting(data: bytes) -> Manifest:
            line, _, body = data.partition(b"\n")
            head = b" ".join([*line.split(b" ")[:2], b"%d %08x" % (len(body), crc32c(body))])
            return decode_manifest(head + b"\n" + body)

        monkeypatch.setattr("bookie_server.storage.files.manifest.decode_manifest", trusting)
        assert wrong_cases("MANIFEST") > 0

    def test_files_that_were_cut_are_taken_for_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def never(*_: object) -> None:
            """Compare no sizes."""

        monkeypatch.setattr(redo, "_require_whole", never)
        assert wrong_cases("journal", "journal") > 0

    def test_damage_is_taken_for_a_torn_tail(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lenient(scan: object, synced: int, **others: object) -> object:
            return judge_scan(scan, 0, **others)  # type: ignore[arg-type]

        monkeypatch.setattr(open_files, "judge", lenient)
        assert wrong_cases("open entry log") > 0
