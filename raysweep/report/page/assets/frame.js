/** The frame of a page: its table of contents and its controls at the top. */

function beginContents() {
  const container = unfold("contents");
  const list = element("ul");
  for (const title of document.querySelectorAll("main section > h2")) {
    const section = title.parentElement;
    if (!section.hidden) list.append(element("li", {}, element("a", { href: `#${section.id}` }, title.textContent)));
  }
  container.append(list);
}

function beginTop() {
  const container = unfold("top-controls");
  container.append(themeControl());
  return container;
}
