"use strict";

/** Makes an element. All text is inserted as text nodes, so nothing from a run is parsed as markup. */
function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) created.addEventListener(event, handler);
    } else if (value !== false && value != null) {
      created.setAttribute(key, value === true ? "" : value);
    }
  }
  created.append(...children.filter((child) => child != null));
  return created;
}

/** A user's text, isolated so that right-to-left text does not reorder its surroundings. */
function userText(text) {
  return element("bdi", {}, String(text));
}

/** An SVG element. */
function svgElement(name, attributes = {}, ...children) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

/** A list of terms and descriptions. */
function facts(pairs) {
  const list = element("dl");
  for (const [term, value] of pairs) list.append(element("dt", {}, term), element("dd", {}, value));
  return list;
}

/** A labeled dropdown. ``options`` are pairs of value and text. */
function selectBox(label, options, chosen, onChange) {
  const items = options.map(([value, words]) => element("option", { value, selected: value === chosen }, words));
  const box = element("select", { on: { change: () => onChange(box.value) } }, ...items);
  return element("label", {}, label, box);
}

/** A choice of one of a few options that are all visible. */
function choiceGroup(name, label, options, chosen, onChange) {
  const group = element("fieldset", { class: "choices" }, element("legend", { class: "away" }, label));
  for (const [value, words] of options) {
    const button = element("input", { type: "radio", name, value, checked: value === chosen });
    button.addEventListener("change", () => onChange(value));
    group.append(element("label", {}, button, words));
  }
  return group;
}

/** Shows an element that is hidden without scripts. */
function unfold(id) {
  const container = document.getElementById(id);
  if (container) {
    container.hidden = false;
    const section = container.closest("section.scripted");
    if (section) section.hidden = false;
  }
  return container;
}

/** Announces a text to screen readers. */
const announcer = element("div", { class: "away", "aria-live": "polite" });
document.body.append(announcer);

function announce(text) {
  announcer.textContent = text;
}
