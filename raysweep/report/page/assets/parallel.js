/** Parallel coordinates: a line per trial, over the varied parameters and the scores of its best point. */

const NO_VALUE = "no value"; // the parameter does not apply

const PARALLEL_SCORES = [["p", headingP], ["s", headingS], ["objective", "objective"]];

function beginParallel() {
  const container = unfold("parallel-chart");
  if (!container) return;
  const axes = parallelAxes();
  const holder = keyedHolder(container, "middle", "Parallel coordinates");
  holder.style.minWidth = `${95 * axes.length}px`;
  const names = { class: "wide", tabindex: "0", role: "region", "aria-label": "Parallel coordinates, scrolls horizontally" };
  const box = element("div", names, holder);
  container.append(box, legendOf("Legend of the parallel coordinates", colorItems, ["color"]));
  const chart = new Chart(holder, () => parallelOptions(axes, keys.trial), (drawn) => {
    drawn.on("axisareaselected", (event) => narrowByAxis(axes, event));
    drawn.on("click", (event) => pinTrial(event.data));
  });
  const shown = (trial) => axes.filter((axis) => trialValue(trial, axis.key) != null);
  const words = (trial) => shown(trial).map((axis) => `${axis.name} ${shortValue(trialValue(trial, axis.key))}`);
  const tipPlace = () => [box.scrollLeft + box.clientWidth / 2, 0];
  const keys = new TrialKeys(chart, { marks: parallelMarks, words, tipPlace });
  onSelection((names) => {
    if (["selected", "color", "pinned"].some((name) => names.has(name))) chart.redraw();
    if (names.has("axes") && selection.axes.size === 0 && chart.chart) clearAxes(chart.chart, axes);
  });
}

/** The trials for the keyboard: sideways in their order, upwards by the objective. */
function parallelMarks() {
  return shownTrials().map((trial) => ({ trial, x: trial, y: trials[trial].objective }));
}

/** The indexes of the selected trials that have a point. */
function shownTrials() {
  const isShown = (index) => trials[index].objective != null && isTrialSelected(index);
  return [...trials.keys()].filter(isShown);
}

/** Each axis has the ``key`` of a trial's value, and ``coordinate``, which maps a value to its position. */
function parallelAxes() {
  const axes = run.parameters.map((parameter, index) => parameterAxis(parameter, index));
  for (const [key, name] of PARALLEL_SCORES) axes.push(numberAxis(key, name, false));
  return axes;
}

function parameterAxis(parameter, index) {
  const key = `parameter ${index}`;
  if (parameter.kind === "number") return numberAxis(key, parameter.name, parameter.log);
  const data = isAbsentSomewhere(key) ? [NO_VALUE, ...parameter.values] : parameter.values;
  const coordinate = (value) => data.indexOf(value == null ? NO_VALUE : String(value));
  return { key, name: parameter.name, type: "category", data, coordinate };
}

/** Trials without a value get the position ``absent`` below all others, so that their lines do not cross the axis elsewhere. */
function numberAxis(key, name, isLog) {
  const values = trials.map((trial) => trialValue(trial, key)).filter((value) => value != null);
  const extent = values.length ? roundExtent(Math.min(...values), Math.max(...values), isLog) : {};
  const absent = isAbsentSomewhere(key) ? (isLog ? extent.min / 10 : extent.min - extent.interval) : null;
  if (absent !== null) extent.min = absent;
  return { key, name, type: isLog ? "log" : "value", extent, absent, coordinate: (value) => value ?? absent };
}

function isAbsentSomewhere(key) {
  return trials.some((trial) => trial.objective != null && trialValue(trial, key) == null);
}

/** Round limits around all values, so that the axis does not depend on the selection. */
function roundExtent(low, high, isLog) {
  if (isLog) return { min: 10 ** Math.floor(Math.log10(low)), max: 10 ** Math.ceil(Math.log10(high)) };
  const range = high - low || Math.abs(low) || 1;
  const size = 10 ** Math.floor(Math.log10(range / 4));
  const interval = size * [1, 2, 5, 10].find((factor) => range / (size * factor) <= 6);
  const rounded = (number) => Number(number.toPrecision(12));
  const steps = [Math.floor(low / interval), Math.ceil(high / interval)];
  return { min: rounded(steps[0] * interval), max: rounded(Math.max(steps[1], steps[0] + 1) * interval), interval: rounded(interval) };
}

const MAX_NAME_LENGTH = 14;

function shortened(text, maxLength = MAX_NAME_LENGTH) {
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
}

function parallelOptions(axes, keyed) {
  const scheme = colors();
  const paint = coloring();
  const isDense = trials.length > 200;
  const pinned = pinnedTrial();
  const lines = shownTrials().map((index) => {
    const trial = trials[index];
    const value = axes.map((axis) => axis.coordinate(trialValue(trial, axis.key)) ?? "-");
    const isBold = index === pinned || index === keyed;
    const lineStyle = { color: paint.of(trial), opacity: isBold ? 1 : isDense ? 0.25 : 0.6, width: isBold ? 3 : 1.3 };
    return { value, lineStyle, trial: index };
  });
  const data = lines.filter((line) => line.trial !== pinned);
  for (const line of lines) if (line.trial === pinned) data.push(outline(line, scheme), line);
  return {
    animation: false,
    tooltip: tipStyle(scheme, tip),
    parallel: { left: 50, right: 60, top: 44, bottom: 32 },
    parallelAxis: axes.map((axis, dim) => parallelAxis(axis, dim, scheme)),
    series: [{ id: "trials", type: "parallel", smooth: false, inactiveOpacity: 0.03, activeOpacity: 1, data }],
  };
}

function parallelAxis(axis, dim, scheme) {
  const isCategory = axis.type === "category";
  const isScore = PARALLEL_SCORES.some(([key]) => key === axis.key);
  return {
    dim,
    id: axis.key,
    type: axis.type,
    name: shortened(axis.name),
    nameLocation: "end",
    nameGap: 14,
    nameTextStyle: { color: scheme.ink, fontSize: 12, fontWeight: isScore ? "bold" : "normal" },
    axisLine: { lineStyle: { color: scheme.soft, width: 1.4 } },
    axisTick: { lineStyle: { color: scheme.soft }, alignWithLabel: true },
    axisLabel: {
      color: scheme.ink,
      fontSize: 11,
      margin: 12,
      textBorderColor: scheme.back,
      textBorderWidth: 3,
      formatter: (value) => {
        if (value === (isCategory ? NO_VALUE : axis.absent)) return `{absent|${NO_VALUE}}`;
        return isCategory ? shortened(value, 12) : shortNumber(value);
      },
      rich: { absent: { color: scheme.ink, fontSize: 11, padding: [26, 0, 0, 0] } }, // below the lines
    },
    areaSelectStyle: { width: 22, color: withOpacity(scheme.link, 0.25), borderColor: scheme.link, borderWidth: 1 },
    ...(isCategory ? { data: axis.data } : axis.extent),
  };
}

function narrowByAxis(axes, event) {
  const axis = axes.find(({ key }) => key === event.parallelAxisId);
  const changed = new Map(selection.axes);
  if (!axis) return;
  if (event.intervals && event.intervals.length) {
    changed.set(axis.key, { intervals: event.intervals, coordinate: axis.coordinate });
  } else {
    changed.delete(axis.key);
  }
  change({ axes: changed });
}

function clearAxes(chart, axes) {
  for (const axis of axes) chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: axis.key, intervals: [] }, { silent: true });
}
