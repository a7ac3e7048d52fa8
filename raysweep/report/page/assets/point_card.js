/** Descriptions of a point for tooltips, the pinned card and screen readers. */

function pointTitle(place) {
  return `Trial ${points.trial[place]}, rung ${points.step[place]}, ${kindName(place)}`;
}

function marksOf(place) {
  const member = memberOfPoint.get(place);
  if (!member) return [];
  const marks = ["on the front"];
  if (member.knee) marks.push("★ knee");
  if (member.best) marks.push("◆ best objective");
  if (Object.values(member.intervals).some((certainty) => certainty && certainty.inKneeRegion)) marks.push("in the knee's region");
  for (const missed of member.misses) marks.push(`misses ${missed}`);
  return marks;
}

/** The varied parameters that apply to a trial. */
function configurationOf(trial, most = 40) {
  const pairs = run.parameters.map((parameter, place) => [parameter.name, trial.values[place]]);
  return pairs.filter(([, value]) => value != null).map(([name, value]) => [userText(shortValue(name)), userText(shortValue(value, most))]);
}

function intervalText(member, split, score) {
  const interval = member && member.intervals[split] && member.intervals[split][score];
  return interval ? ` (${shownScore(interval[0])} to ${shownScore(interval[1])})` : "";
}

function scorePairs(place, split) {
  const scores = scoresOn(place, split);
  if (!scores) return [];
  const member = memberOfPoint.get(place);
  const pairs = [
    ["P", shownScore(scores.p) + intervalText(member, split, "p")],
    ["S", shownScore(scores.s) + intervalText(member, split, "s")],
    ["retention", shownScore(scores.r) + intervalText(member, split, "r")],
  ];
  if (scores.a != null) pairs.push(["accuracy", shownScore(scores.a)]);
  const certainty = member && member.intervals[split];
  if (certainty && certainty.stability != null) pairs.push(["stability", shownShare(certainty.stability)]);
  return pairs;
}

const MOST_TIP_VALUES = 10;

/** The tooltip of a mark, which is a trial's point, a trial, or a point that does not come from a trial. */
function tip(mark) {
  if (!mark) return "";
  if (mark.point != null) return pointTip(mark.point);
  if (mark.trial != null) return trialTip(trials[mark.trial]);
  if (!mark.scores) return "";
  const pairs = [["P", shownScore(mark.scores.p)], ["S", shownScore(mark.scores.s)]];
  if (mark.scores.r != null) pairs.push(["retention", shownScore(mark.scores.r)]);
  return element("div", { class: "tip" }, element("strong", {}, userText(shortValue(mark.name))), facts(pairs));
}

function pointTip(place) {
  const marks = marksOf(place);
  const configuration = configurationOf(trialOfPoint(place)).slice(0, MOST_TIP_VALUES);
  return element(
    "div",
    { class: "tip" },
    element("strong", {}, pointTitle(place)),
    marks.length ? element("div", {}, marks.join(", ")) : null,
    facts([...scorePairs(place, selection.split), ...configuration]),
  );
}

function trialTip(trial) {
  const best = trial.best;
  const scores = [
    ["objective", shownScore(trial.objective)],
    ["P", shownScore(bestMeasure(trial, "p"))],
    ["S", shownScore(bestMeasure(trial, "s"))],
    ["rungs", String(trial.rungs.length)],
  ];
  return element(
    "div",
    { class: "tip" },
    element("strong", {}, best == null ? `Trial ${trial.trial}` : `Trial ${trial.trial}, best point ${kindName(best)}`),
    element("div", {}, standingOf(trial)),
    facts([...scores, ...configurationOf(trial).slice(0, MOST_TIP_VALUES)]),
  );
}

/** A point in one line for screen readers. */
function spokenPoint(place) {
  const scores = scorePairs(place, selection.split).map(([name, value]) => `${name} ${value}`);
  const marks = marksOf(place);
  return [pointTitle(place), ...marks, ...scores].join(", ");
}

/** A trial in one line, with the values that a chart shows. */
function spokenTrial(trial, words) {
  return [`Trial ${trial.trial}`, standings.get(trial.standing).words, ...words].join(", ");
}
