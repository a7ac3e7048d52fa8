/** Learning curves: a line per trial, with the trial's status at its end. */

function beginCurves() {
  const container = unfold("curves-chart");
  if (!container) return;
  const holder = keyedHolder(container, "middle", "Learning curves");
  const measure = selectBox("Score", MEASURES, selection.measure, (name) => change({ measure: name }));
  const legend = legendOf("Legend of the learning curves", trialItems, ["color"]);
  container.append(element("div", { class: "controls" }, measure), holder, legend);
  const chart = new Chart(holder, () => curveOptions(keys.trial), (drawn) => {
    drawn.on("click", (event) => pinTrial(event.data));
  });
  const keys = new TrialKeys(chart, { marks: curveMarks, words: curveWords, tipPlace: placeOnAxes });
  onSelection((names) => {
    if (["selected", "measure", "color", "pinned"].some((name) => names.has(name))) chart.redraw();
  });
}

/** Pins the best point of a mark's trial. */
function pinTrial(mark) {
  if (mark && mark.trial != null && trials[mark.trial].best != null) pin(trials[mark.trial].best);
}

/** The trials for the keyboard: sideways in their order, upwards by the last score. */
function curveMarks() {
  return shownCurves().map(({ trial, coords }) => ({ trial, x: trial, y: coords.at(-1)[1], value: coords.at(-1) }));
}

function curveWords(trial) {
  const scores = curveOf(trial).map(([, score]) => shownScore(score));
  return [`${measureName(selection.measure)} by rung ${scores.join(", ")}`];
}

/** Examples seen and the score, per rung. */
function curveOf(trial) {
  const column = RUNG_FIELDS[selection.measure];
  return trial.rungs.filter((rung) => rung[column] != null).map((rung) => [rung[0], rung[column]]);
}

/** The indexes and curves of the selected trials that have a curve. */
function shownCurves() {
  const curves = trials.map((trial, index) => ({ trial: index, coords: curveOf(trial) }));
  return curves.filter(({ trial, coords }) => coords.length > 0 && isTrialSelected(trial));
}

function curveOptions(keyed) {
  const scheme = colors();
  const isNarrow = innerWidth < 640;
  const seen = trials.flatMap((trial) => trial.rungs.map((rung) => rung[0])).filter((number) => number > 0);
  const isLog = seen.length > 0 && Math.max(...seen.slice(0, 50000)) > 8 * Math.min(...seen.slice(0, 50000));
  const examplesAxis = { ...axisStyle(scheme, "training examples seen"), nameGap: 28 };
  examplesAxis.axisLabel = { ...examplesAxis.axisLabel, formatter: shortCount };
  return {
    animation: false,
    grid: { left: isNarrow ? 46 : 58, right: 18, top: 14, bottom: 48 },
    tooltip: tipStyle(scheme, tip),
    xAxis: { type: isLog ? "log" : "value", logBase: isLog ? 2 : undefined, scale: true, ...examplesAxis },
    yAxis: { type: "value", scale: true, nameGap: isNarrow ? 30 : 38, ...axisStyle(scheme, `${measureName(selection.measure)} (×100)`) },
    series: curveSeries(scheme, keyed),
  };
}

function shortCount(number) {
  if (number >= 1e6) return `${Number((number / 1e6).toPrecision(3))}M`;
  return number >= 1e4 ? `${Number((number / 1e3).toPrecision(3))}k` : String(Math.round(number));
}

function curveSeries(scheme, keyed) {
  const paint = coloring();
  const lines = [];
  const pinnedLines = [];
  const ends = [];
  const pinned = pinnedTrial();
  const isDense = trials.length > 100;
  for (const { trial, coords } of shownCurves()) {
    const isBold = trial === pinned || trial === keyed;
    const isPinned = trial === pinned;
    const color = paint.of(trials[trial]);
    if (coords.length > 1) {
      const lineStyle = { color, opacity: isBold ? 1 : isDense ? 0.35 : 0.75, width: isBold ? 3 : 1.4 };
      (isPinned ? pinnedLines : lines).push({ coords, lineStyle, trial });
    }
    const itemStyle = { color, opacity: isBold ? 1 : isDense ? 0.6 : 0.9 };
    if (isPinned) Object.assign(itemStyle, { borderColor: scheme.ink, borderWidth: 2 });
    const symbolSize = isPinned ? 13 : isDense ? 5 : 8;
    const symbol = STANDING_SHAPES[trials[trial].standing];
    ends.push({ value: coords.at(-1), symbol, symbolSize, itemStyle, trial });
  }
  lines.push(...pinnedLines.flatMap((line) => [outline(line, scheme), line]));
  const ringed = ends.find((mark) => mark.trial === keyed);
  return [
    { id: "lines", type: "lines", coordinateSystem: "cartesian2d", polyline: true, data: lines, z: 2, zlevel: 0 },
    { id: "ends", type: "scatter", data: ends, z: 3 },
    ringSeries("cursor ring", ringed && { value: ringed.value }, { color: scheme.ink, width: 2, size: 22 }),
  ];
}
