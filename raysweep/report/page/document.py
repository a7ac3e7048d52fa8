"""The page as one HTML document that embeds its policy, styles, data and scripts and fetches nothing."""

from raysweep.report.page.assets import Assets
from raysweep.report.page.data import page_data
from raysweep.report.page.embedded import embedded_json
from raysweep.report.page.markup import joined
from raysweep.report.page.sections import Material, head, sections
from raysweep.report.page.visible import escape


def render(material: Material) -> bytes:
    """Return the page as file content. All texts of the run are escaped."""
    summary = material.summary
    assets = Assets.read()
    title = escape(f"raysweep: {summary.results.info.name}")
    body = joined(sections(material))
    data = embedded_json(page_data(summary, material.readings))
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{assets.policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}</title>\n<style>{assets.style}</style>\n</head>\n<body>",
        f'<header class="top">\n{head(summary)}\n<div class="scripted" id="top-controls" hidden></div>\n</header>',
        '<nav class="scripted" id="contents" aria-label="Contents" hidden></nav>',
        f"<main>\n{body}\n</main>",
        '<div class="scripted" id="selection-bar" role="status" hidden></div>',
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{assets.library}</script>\n<script>{assets.script}</script>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts).encode()
