/** Light or dark: the system's setting, or the reader's choice. */
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

function onTheme(listener) {
  themeListeners.push(listener);
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  remember("theme", name);
  themeListeners.forEach((listener) => listener());
}

systemIsDark.addEventListener("change", () => themeListeners.forEach((listener) => listener()));

/** The earlier choice on this page; browsers may not store anything for files. */
function remember(name, value) {
  try {
    sessionStorage.setItem(`raysweep ${run.run.name} ${name}`, JSON.stringify(value));
  } catch {
    // Storage is not available.
  }
}

function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(`raysweep ${run.run.name} ${name}`));
  } catch {
    return null;
  }
}

function themeControl() {
  const names = [
    ["auto", "system"],
    ["light", "light"],
    ["dark", "dark"],
  ];
  const chosen = recall("theme") || "auto";
  if (chosen !== "auto") setTheme(chosen);
  return selectBox("Colors", names, chosen, setTheme);
}

/** The page's colors by name, for charts. */
function colors() {
  const style = getComputedStyle(document.documentElement);
  const scheme = {};
  for (const name of ["ink", "soft", "line", "back", "card", "grid", "link", "knee", "note"]) {
    scheme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  scheme.palette = isDark() ? run.palette.dark : run.palette.light;
  scheme.ramp = isDark() ? ["#2f6690", "#d9efff"] : ["#86bbdd", "#062f5c"];
  return scheme;
}

function withOpacity(color, opacity) {
  return echarts.color.modifyAlpha(color, opacity);
}

/** The available color encodings. */
function colorKeys() {
  const keys = run.parameters.map((parameter, index) => [`parameter ${index}`, shortValue(parameter.name)]);
  return [...keys, ["status", "status"], ["objective", "objective"]];
}

/** The loss if it varies, else the first non-numeric parameter, else the status. */
function usualColorKey() {
  const isLoss = (parameter) => parameter.name === "loss";
  let index = run.parameters.findIndex(isLoss);
  if (index < 0) index = run.parameters.findIndex((parameter) => parameter.kind === "category");
  return index < 0 ? "status" : `parameter ${index}`;
}

/** The current color encoding. */
function colorKey() {
  return selection.color || usualColorKey();
}

/** The current color encoding: ``of(trial)`` returns a color, and ``legend`` lists colors and their meanings. */
function coloring() {
  const key = colorKey();
  const values = [...new Set(trials.map((trial) => trialValue(trial, key)).filter((value) => value != null))];
  const scheme = colors();
  if (values.length > 0 && values.every((value) => typeof value === "number")) return rampColoring(key, values, scheme);
  values.sort();
  const byValue = new Map(values.map((value, index) => [value, scheme.palette[index % scheme.palette.length]]));
  const legend = values.slice(0, 16).map((value) => [byValue.get(value), shortValue(value)]);
  if (values.length > 16) legend.push([scheme.soft, `and ${values.length - 16} more`]);
  return { legend, of: (trial) => byValue.get(trialValue(trial, key)) || scheme.soft };
}

function rampColoring(key, values, scheme) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const isLog = low > 0 && high > 50 * low;
  const along = (value) => {
    if (high === low) return 1;
    return isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  };
  const colorOf = (value) => (value == null ? scheme.soft : echarts.color.lerp(along(value), scheme.ramp));
  const middle = isLog ? Math.sqrt(low * high) : (low + high) / 2;
  const legend = [...new Set([low, middle, high])].map((value) => [colorOf(value), shortNumber(value)]);
  return { legend, of: (trial) => colorOf(trialValue(trial, key)) };
}
