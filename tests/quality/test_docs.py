"""The documentation builds without warnings or network access and matches the code."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
import yaml

import raysweep
from raysweep.cli.commands import app
from raysweep.config.document import Document
from raysweep.config.losses import LOSSES
from raysweep.config.space_parser import parse as parse_space
from raysweep.config.sweep import SweepConfig
from raysweep.config.sweep import parse as parse_sweep
from raysweep.config.trial import parameter_names
from support.documented_loss import write_documented_loss
from support.paths import ROOT, SPACES

WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOWHERE = "http://127.0.0.1:9"  # nothing listens there
NO_NETWORK = {
    "http_proxy": NOWHERE,
    "https_proxy": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
}
LOADED = {"src", "srcset", "data", "poster"}  # attributes whose address a browser fetches by itself


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the build fails on any warning, such as a broken link."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **NO_NETWORK, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a browser fetches when it loads a page, without links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in LOADED]
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get("href") or "")


def test_pages_load_no_external_resources(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not [
            address for address in Loads(text).addresses if re.match(r"(https?:)?//", address)
        ], page
        assert 'class="mermaid"' not in text, "the theme would fetch the script that draws diagrams"
    for style in site.rglob("*.css"):
        assert not re.search(
            r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")
        ), style


def test_loaded_resources_exist(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Loads(page.read_text(encoding="utf-8")).addresses:
            # whose addresses start at the root
            if page.name != "404.html" and not address.startswith("data:"):
                assert (page.parent / address.partition("?")[0]).is_file(), (page, address)


def test_reference_has_all_configuration_keys(site: Path) -> None:
    text = (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    schema = SweepConfig.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    for key in [
        *(key for model in models for key in model["properties"]),
        *parameter_names(),
        *LOSSES,
    ]:
        assert f"<code>{key}</code>" in text


def test_reference_has_all_commands_and_options(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands
    assert len(commands) >= 9
    for name, command in commands.items():
        assert f'<h2 id="{name}">' in text
        for parameter in command.params:
            assert (
                parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
            ) in text


def test_reference_has_the_public_api_and_shipped_spaces(site: Path) -> None:
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in set(raysweep.__all__) - {"__version__"}:
        assert f"raysweep.{name}" in python
    assert not re.search(r":(class|func|meth|mod|attr):", python)
    spaces = (site / "reference" / "spaces.html").read_text(encoding="utf-8")
    for path in SPACES.glob("*.yaml"):
        assert f'<h2 id="{path.stem}">' in spaces


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a language in the hand-written pages, each with its page."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [
        (path.name, code)
        for path in WRITTEN
        for code in fence.findall(path.read_text(encoding="utf-8"))
    ]


def test_yaml_blocks_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is valid together with the other sections of a shipped space."""
    write_documented_loss(tmp_path, monkeypatch)
    shipped = yaml.safe_load((SPACES / "smoke.yaml").read_text(encoding="utf-8"))
    assert len(blocks("yaml")) >= 4
    for page, code in blocks("yaml"):
        path = tmp_path / f"{page}.yaml"
        path.write_text(code, encoding="utf-8")
        path.write_text(yaml.safe_dump({**shipped, **Document.read(path).values}), encoding="utf-8")
        document = Document.read(path)
        parse_space(document, parse_sweep(document))


def test_shell_commands_exist() -> None:
    commands = typer.main.get_command(app).commands
    options = {
        option
        for command in commands.values()
        for parameter in command.params
        for option in getattr(parameter, "opts", ())
    }
    top_level = set(SweepConfig.model_fields)
    num_checked = 0
    for page, code in blocks("sh"):
        for line in code.replace("\\\n", " ").splitlines():
            if line.startswith("raysweep "):
                words = line.partition("  #")[0].split()
                assert words[1] in commands, (page, line)
                for option in (word for word in words if word.startswith("--")):
                    assert option in options or option[2:].partition(".")[0] in top_level, (
                        page,
                        line,
                    )
                num_checked += 1
    assert num_checked >= 15


def test_python_blocks_compile_and_use_public_names() -> None:
    for page, code in blocks("python"):
        compile(code, page, "exec")
        for name in re.findall(r"raysweep\.(\w+)", code):
            assert name in raysweep.__all__, (page, name)


def test_named_files_and_modules_exist() -> None:
    packages = "|".join(path.parent.name for path in (ROOT / "raysweep").glob("*/__init__.py"))
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(
            r"`((?:raysweep|tests|docs|search_spaces|benchmarks)/[\w/.-]+)`", text
        ):
            assert "NAME" in path or (ROOT / path).exists(), (page.name, path)
        for module in re.findall(rf"`((?:{packages})\.[a-z_]+)(?:\.[A-Z]\w+)?`", text):
            # on other pages, these are configuration keys
            if page.name in (
                "architecture.md",
                "extending.md",
            ):
                where = ROOT / "raysweep" / module.replace(".", "/")
                assert where.is_dir() or where.with_suffix(".py").is_file(), (page.name, module)


def test_links_in_top_level_pages_resolve() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (ROOT / target).exists(), (name, target)


def test_demo_installs_only_its_extras_and_shows_progress() -> None:
    """``make --always-make --dry-run`` prints what ``make demo`` would run in a fresh clone."""
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (install,) = [line for line in done.stdout.splitlines() if " pip install " in line]
    extras = re.findall(r"\[([\w,]+)\]", install)
    assert extras == ["cpu,demo"]
    assert "--quiet" not in install.split() and "-q" not in install.split()


def test_start_page_names_the_cpu_index_and_the_folders() -> None:
    for page in ("README.md", "docs/start.md"):
        assert "https://download.pytorch.org/whl/cpu" in (ROOT / page).read_text(encoding="utf-8")
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert "$XDG_CACHE_HOME/raysweep" in start and "WSL" in start
    assert "http.server" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
