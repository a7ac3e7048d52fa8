"use strict";

/** Makes an element. Every text goes in as a text node, so nothing of a run is ever taken for markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    } else if (value !== false && value != null) {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A text of a user, which may run from right to left without turning what is around it. */
function userText(text) {
  return element("bdi", {}, String(text));
}

/** An element of a picture within the page. */
function svgElement(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Terms and what is said of each. */
function facts(pairs) {
  const list = element("dl");
  for (const [term, value] of pairs) list.append(element("dt", {}, term), element("dd", {}, value));
  return list;
}

/** A labelled choice of one of several. ``options`` are pairs of value and words. */
function selectBox(label, options, chosen, onChange) {
  const made = options.map(([value, words]) => element("option", { value, selected: value === chosen }, words));
  const box = element("select", { on: { change: () => onChange(box.value) } }, ...made);
  return element("label", {}, label, box);
}

/** A choice of one of a few that are all seen at once. */
function choiceGroup(name, label, options, chosen, onChange) {
  const group = element("fieldset", { class: "choices" }, element("legend", { class: "away" }, label));
  for (const [value, words] of options) {
    const button = element("input", { type: "radio", name, value, checked: value === chosen });
    button.addEventListener("change", () => onChange(value));
    group.append(element("label", {}, button, words));
  }
  return group;
}

/** Shows a place that is hidden where there is no script. */
function unfold(id) {
  const place = document.getElementById(id);
  if (place) {
    place.hidden = false;
    const around = place.closest("section.scripted");
    if (around) around.hidden = false;
  }
  return place;
}

/** What screen readers are told. */
const announcer = element("div", { class: "away", "aria-live": "polite" });
document.body.append(announcer);

function announce(text) {
  announcer.textContent = text;
}
