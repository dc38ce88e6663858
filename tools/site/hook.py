"""What mkdocs gets of the checkout: pages and the files that they link to, each under its own path.

So a link leads to the same place in the checkout and in the site. A folder that is linked gets a page that lists it.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HOME = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/*.md", "deploy/*.md", "bench/*.md", "demo/*.md", "tests/*.md")
_LISTED = "files.md"
_LINK = re.compile(r"\]\(([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = sorted(page for pattern in PAGES for page in HOME.glob(pattern))
    linked = {target for page in pages for target in _linked(page)} - {*pages}
    folders = {target for target in linked if target.is_dir()}
    inside = {file for folder in folders for file in folder.iterdir() if file.is_file()}
    shown = [_file(config, path) for path in (*pages, *sorted(linked - folders | inside - {*pages}))]
    shown += [File.generated(config, f"{_name(each)}/{_LISTED}", content=_listing(each)) for each in sorted(folders)]
    shown.append(_file(config, HOME / "tools/site/iframe-worker.js", "assets/iframe-worker.js"))
    return Files([*filter(_is_themes, files), *shown])


def _is_themes(file: File) -> bool:
    return file.abs_src_path is None or not Path(file.abs_src_path).is_relative_to(HOME / "docs")


def _linked(page: Path) -> set[Path]:
    targets = re.findall(_LINK, page.read_text(encoding="utf-8"))
    found = {(page.parent / target).resolve() for target in targets if "://" not in target}
    return {target for target in found if target.exists() and target.is_relative_to(HOME)}


def _name(path: Path) -> str:
    return path.relative_to(HOME).as_posix()


def _file(config: MkDocsConfig, path: Path, name: str = "") -> File:
    return File.generated(config, name or _name(path), abs_src_path=str(path))


def _listing(folder: Path) -> str:
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    return f"# {_name(folder)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to folders to their lists."""
    here = (HOME / page.file.src_uri).parent

    def to_list(match: re.Match[str]) -> str:
        target = match[1]
        return f"]({target}/{_LISTED}" if "://" not in target and (here / target).is_dir() else match[0]

    return _LINK.sub(to_list, markdown)
