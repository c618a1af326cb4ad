"""The figures of the tree are counted as `tests.architecture.house` describes them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.architecture.house.areas import (
    by_folder,
    is_log_layer,
    is_log_layer_above_stores,
    modules_of,
    prose_of,
)
from tests.architecture.house.figures import tree_figures
from tests.architecture.house.imports import circles, edges_within, graph_of, imports_of
from tests.architecture.house.lines import Lines, lines_of, uses_of_any
from tests.architecture.house.moves import Moves, moves_in
from tests.architecture.house.sentences import drawn, sentences_in
from tests.architecture.house.tics import TICS, Hit, hits, hits_in

MODULE = '''"""Two lines

of docstring."""

from typing import (
    Any,
)

# alone
value: Any = 1  # beside code
"""Of an attribute."""
'''


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def tics_in(text: str, path: str = "page.md") -> list[tuple[str, int]]:
    return [(hit.tic, hit.line) for hit in hits_in(path, text)]


def test_each_line_has_one_kind() -> None:
    expected = Lines(code=1, docstring=4, blank=2, comment=1, imports=3)
    assert lines_of(MODULE) == expected
    assert expected.total == len(MODULE.splitlines())
    assert uses_of_any(MODULE) == 1


def test_generated_files_are_left_out_and_pages_are_prose(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "ledgerlog_spark/a.py": "",
            "ledgerlog_spark/wire/x_pb2.py": "",
            "bookie_server/b.py": "",
            "other/c.py": "",
            "docs/PAGE.md": "",
            "docs/adr/0001.md": "",
            "README.md": "",
            "Makefile": "",
            ".github/ISSUE_TEMPLATE/bug.md": "",
            ".venv/package/README.md": "",
            "benchmarks/append.py": "",
            "benchmarks/README.md": "",
            "notebooks/01.ipynb": "",
            "tests/unit/test_a.py": "",
        },
    )
    modules = ["bookie_server/b.py", "ledgerlog_spark/a.py"]
    assert modules_of(root) == modules
    others = [
        ".github/ISSUE_TEMPLATE/bug.md", "Makefile", "README.md", "benchmarks/README.md",
        "benchmarks/append.py", "docs/PAGE.md", "docs/adr/0001.md", "notebooks/01.ipynb",
    ]  # fmt: skip
    assert prose_of(root) == [*modules, *others]
    assert by_folder(modules) == {"bookie_server": modules[:1], "ledgerlog_spark": modules[1:]}


def test_the_log_layer_is_found_in_both_layouts() -> None:
    inside = [
        "protocol/log/commit/commit.py", "protocol/log/commit.py", "protocol/leader/leader.py",
        "protocol/leader/leader.py", "log/log.py", "log/reading/reader.py",
        "metadata/logs/store.py", "metadata/zookeeper/log_store.py",
    ]  # fmt: skip
    above = [name for name in inside if is_log_layer_above_stores(f"ledgerlog_spark/{name}")]
    assert above == inside[:-2]
    outside = [
        "protocol/ledger/write/writer.py",
        "protocol/ledger/write/writer.py",
        "metadata/leases.py",
    ]
    assert [name for name in inside if not is_log_layer(f"ledgerlog_spark/{name}")] == []
    assert [name for name in outside if is_log_layer(f"ledgerlog_spark/{name}")] == []


def test_imports_name_modules_and_can_leave_out_those_for_types() -> None:
    text = (
        "from a import b, C\nimport a.d\nif TYPE_CHECKING:\n    from a.e import E\n"
        "def f():\n    import a.g\n"
    )
    known = {"a", "a.b", "a.d", "a.e", "a.g", "a.h"}
    assert imports_of(text, known) == {"a", "a.b", "a.d", "a.e", "a.g"}
    assert imports_of(text, known, typing_too=False) == {"a", "a.b", "a.d", "a.g"}


def test_circles_are_strongly_connected_components() -> None:
    graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"a"}, "d": {"c"}, "e": {"f"}, "f": {"e"}}
    assert circles(graph) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []
    assert edges_within(graph, {"a", "b", "c"}) == 3


def test_figures_of_a_tree(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "ledgerlog_spark/__init__.py": '"""Docs."""\n',
            "ledgerlog_spark/log/one.py": "import ledgerlog_spark.log.two\n" + "x = 1\n" * 39,
            "ledgerlog_spark/log/two.py": "if TYPE_CHECKING:\n    from ledgerlog_spark.log.one "
            "import x\n",
        },
    )
    figures = tree_figures(root)
    assert figures["total"]["lines"] == 1 + 40 + 2
    assert figures["log_layer"]["files"] == 2
    assert figures["folders"]["ledgerlog_spark/log"]["imports_within"] == 2
    assert figures["folders"]["ledgerlog_spark"]["modules"] == 0
    assert figures["small_files"] == {"ledgerlog_spark/log/two.py": 2}
    assert figures["circles"] == [["ledgerlog_spark.log.one", "ledgerlog_spark.log.two"]]
    assert figures["circles_at_run_time"] == []
    assert len(graph_of(root, modules_of(root))) == 3


def test_a_move_is_a_call_in_another_file_than_the_call_before_it() -> None:
    seen = [("a", "f"), ("a", "g"), ("b", "h"), ("a", "f"), ("b", "h")]
    assert moves_in(seen) == Moves(moves=3, calls=5, functions=3, files=2, entered={"a": 2, "b": 2})
    assert moves_in([]) == Moves(moves=0, calls=0, functions=0, files=0, entered={})


def test_each_tic_matches_its_bad_prose_and_spares_the_good() -> None:
    missed = [
        (name, bad)
        for name, tic in TICS.items()
        for bad in tic.bad
        if name not in {hit.tic for hit in hits_in("page.md", bad)}
    ]
    wrong = [
        (name, good)
        for name, tic in TICS.items()
        for good in tic.good
        if name in {hit.tic for hit in hits_in("page.md", good)}
    ]
    assert (missed, wrong) == ([], [])
    assert [name for name, tic in TICS.items() if not tic.bad] == []


def test_tics_of_a_module_are_found_by_line_in_docstrings_comments_and_strings() -> None:
    text = (
        '"""First.\n\nThe blocking face of it.\n"""\n'
        "face = 1\n"
        'word = "face"\n'
        "# a comment on the\n# second face of it\n"
        'print(f"the face of {word}", "a `face` here")\n'
    )
    assert tics_in(text, "module.py") == [("face", 3), ("face", 8), ("face", 9)]


def test_tics_of_a_page_are_found_outside_of_code() -> None:
    text = "A [face](face.md) of\nit.\n\n```\nthe face\n```\n\nNot `face`, but\nlet\ngo.\n"
    assert tics_in(text) == [("face", 1), ("let-go", 9)]


def test_tics_of_a_makefile_are_found_in_its_comments() -> None:
    text = (
        "# A comment on the\n# second face of it.\nface: a ## Build a\n"
        "\techo face 's/:[^#]*## its face/'\nother: ## Build its face\n"
    )
    assert tics_in(text, "Makefile") == [("face", 2), ("face", 5)]


def test_tics_of_a_notebook_are_found_in_its_cells_of_markdown() -> None:
    cells = [
        {"cell_type": "code", "source": ["# its face"]},
        {"cell_type": "markdown", "source": ["# A page\n", "\n", "Its face, “here”."]},
        {"cell_type": "code", "source": []},
        {"cell_type": "markdown", "source": ["“Its face.”"]},
    ]
    text = json.dumps({"cells": cells}, indent=1, ensure_ascii=False)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if "Its" in line]
    assert tics_in(text, "notebooks/01.ipynb") == [("face", line) for line in lines]


def test_hits_of_a_list_of_files_can_be_restricted_to_some_tics(tmp_path: Path) -> None:
    root = tree(tmp_path, {"a.md": "its face\n", "b.md": "nobody's face, anew\n"})
    assert hits(root, ["b.md", "a.md"], ["face"]) == [
        Hit("face", "b.md", 1, "nobody's face, anew"),
        Hit("face", "a.md", 1, "its face"),
    ]


def test_sentences_are_drawn_from_prose_and_with_their_places(tmp_path: Path) -> None:
    source = """The first sentence of this module is here. The second one is on the same line.

    Args:
        name: Of the file that the function reads.
    """
    comment = "x = 1  # not the number of the rows\n# a comment on its own line\n"
    assert [str(one) for one in sentences_in("m.py", comment)] == [
        "m.py:1\n    x = 1  # not the number of the rows",
        "m.py:2\n    a comment on its own line",
    ]
    page = "A page:\n\n- An item.\n- Another item of a list.\n\n| a cell of a table | x |\n"
    root = tree(tmp_path, {"ledgerlog_spark/m.py": f'"""{source}"""\n', "docs/p.md": page})
    assert [str(one) for one in sentences_in("m.py", f'"""{source}"""\n')] == [
        "m.py:1\n    The first sentence of this module is here.",
        "m.py:1\n    The second one is on the same line.",
        "m.py:4\n    Of the file that the function reads.",
    ]
    texts = {(one.path, one.line): one.text for one in drawn(root, 100, seed=1)}
    assert texts["docs/p.md", 4] == "Another item of a list."
    assert texts["docs/p.md", 6] == "a cell of a table"
    assert drawn(root, 2, seed=7) == drawn(root, 2, seed=7)
    assert len(drawn(root, 2, seed=7)) == 2
