"use strict";
// `ciphertoll predict` in the page. Functions have the names of those in measure/stats/src/cost, measure/report/src/costs
// and measure/report/src/number.rs, and compute the same in the same order. A test compares every field of the tables.
{
  const panel = document.getElementById("what-if-panel");
  const model = JSON.parse(panel.dataset.model);
  const missingWords = new Map(model.missingTerms);
  const calibrated = new Set(model.calibratedTerms);

  /** Thrown where the run lacks a term. */
  class Missing {
    constructor(term) { this.term = term; }
  }
  const required = (found, term) => {
    if (found === null) throw new Missing(term);
    return found;
  };
  /** What `compute` returns, or the Missing that it throws. */
  const attempt = (compute) => {
    try {
      return compute();
    } catch (error) {
      if (error instanceof Missing) return error;
      throw error;
    }
  };

  // ---- interval.rs

  /** Lanczos approximation: Press et al., Numerical Recipes, 3rd edition, section 6.1. For x > 0.5. */
  const logGamma = (x) => {
    const coefficients = [
      0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
      12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
    ];
    const t = x + 6.5;
    const series = coefficients.reduce((sum, c, i) => (i === 0 ? c : sum + c / (x - 1 + i)), 0);
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(series);
  };

  /** The regularised incomplete beta function by Lentz's continued fraction: Numerical Recipes, section 6.4. */
  const incompleteBeta = (a, b, x) => {
    if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(b, a, 1 - x);
    const awayFromZero = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
    let c = 1;
    let d = 1 / awayFromZero(1 - ((a + b) * x) / (a + 1));
    let fraction = d;
    for (let m = 1; m < 10000; m += 1) {
      let change = 1;
      for (const numerator of [
        (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
        (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
      ]) {
        d = 1 / awayFromZero(1 + numerator * d);
        c = awayFromZero(1 + numerator / c);
        change = c * d;
        fraction *= change;
      }
      if (Math.abs(change - 1) < 1e-15) break;
    }
    const logBeta = logGamma(a) + logGamma(b) - logGamma(a + b);
    return (Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta) / a) * fraction;
  };

  /** The two-sided critical value of Student's t: Abramowitz & Stegun 26.7.1 solved for t by bisection. */
  const criticalT = (confidence, degrees) => {
    let [low, high] = [0, 1];
    for (let step = 0; step < 80; step += 1) {
      const middle = (low + high) / 2;
      if (incompleteBeta(degrees / 2, 0.5, middle) < 1 - confidence) low = middle;
      else high = middle;
    }
    return Math.sqrt(degrees * (1 / high - 1));
  };

  // ---- sum.rs: a sum is an array with a weight for each mean

  const zero = () => model.means.map(() => 0);
  const plus = (one, other) => one.map((weight, index) => weight + other[index]);
  const times = (sum, factor) => sum.map((weight) => weight * factor);
  /** From pairs of number and weight; null stays null. */
  const sumOf = (pairs) => {
    if (pairs === null) return null;
    const sum = zero();
    for (const [index, weight] of pairs) sum[index] = weight;
    return sum;
  };

  const valueOf = (sum) => {
    const result = { value: 0, variance: 0, degrees: 1, blocks: Infinity };
    let spread = 0;
    sum.forEach((weight, index) => {
      if (weight === 0) return;
      const [mean, varianceOfMean, blocks] = model.means[index];
      const variance = weight * weight * varianceOfMean;
      result.value += weight * mean;
      result.variance += variance;
      result.blocks = Math.min(result.blocks, blocks);
      spread += (variance * variance) / (blocks - 1);
    });
    if (spread > 0) result.degrees = (result.variance * result.variance) / spread;
    return result;
  };

  const prediction = ({ value, variance, degrees, blocks }, error) => {
    const scatter = criticalT(model.confidence, degrees) * Math.sqrt(variance) * Math.SQRT2;
    const halfWidth = Math.hypot(scatter, model.normal95 * error * value);
    if (blocks < model.minBlocks) return { value, low: null, high: null };
    return { value, low: Math.max(value - halfWidth, 0), high: value + halfWidth };
  };

  // ---- session.rs

  const costsOf = ({ connect, first, further }) => {
    const byClients = (costs) => costs.map(([clients, pairs]) => [clients, sumOf(pairs)]);
    return { connect: byClients(connect), firstQuery: sumOf(first), furtherQuery: byClients(further) };
  };

  /** The cost at a mean number of concurrent operations; null if there is none. */
  const at = (byClients, concurrency) => {
    if (byClients.length === 0) return null;
    const above = byClients.findIndex(([clients]) => clients >= concurrency);
    if (above === -1) return byClients[byClients.length - 1][1];
    if (above === 0) return byClients[0][1];
    const [[fewer, low], [more, high]] = [byClients[above - 1], byClients[above]];
    const position = Math.log(concurrency / fewer) / Math.log(more / fewer);
    return plus(times(low, 1 - position), times(high, position));
  };

  /** All queries of a session; null if the run lacks a term. */
  const queriesOf = (costs, count, concurrency) => {
    if (count === 0) return zero();
    const further = at(costs.furtherQuery, concurrency);
    const first = costs.firstQuery ?? further;
    if (first === null) return null;
    if (count <= 1) return times(first, count);
    return further === null ? null : plus(first, times(further, count - 1));
  };

  // ---- predict.rs

  class Predictor {
    constructor(profile, load) {
      this.profile = profile;
      this.load = load;
    }

    predict() {
      const { connectsPerS } = this.load;
      const byRole = (compute) => {
        const found = Object.keys(this.profile.cpu).map((role) => [role, attempt(() => compute(role))]);
        return new Map(found);
      };
      return {
        connect: attempt(() => positive(this.timed(this.connectTime()))),
        query: attempt(() => positive(this.timed(this.queryTime()))),
        session: attempt(() => positive(this.timed(this.sessionTime()))),
        throughput: attempt(() => this.throughput()),
        cpu: byRole((role) => positive(this.predicted(this.cpu(role)))),
        cores: byRole((role) => positive(this.predicted(times(this.cpu(role), connectsPerS * 1e-6)))),
      };
    }

    predicted(sum) {
      return prediction(valueOf(sum), this.cpuError());
    }

    cpuError() {
      return this.load.rttNs > 0 ? model.linkCpuError : model.modelError;
    }

    cpu(role) {
      const costs = this.profile.cpu[role];
      const concurrency = this.concurrency();
      const connect = required(at(costs.connect, concurrency), "connect");
      return plus(connect, this.queriesCpu(role, concurrency));
    }

    queriesCpu(role, concurrency) {
      const queries = queriesOf(this.profile.cpu[role], this.load.queriesPerConnection, concurrency);
      return required(queries, "query");
    }

    concurrency() {
      const time = attempt(() => this.sessionTime());
      if (time instanceof Missing) return Infinity;
      return this.load.connectsPerS * valueOf(time.local).value * 1e-9;
    }

    connectTime() {
      const local = required(at(this.profile.latency.connect, 1), "connect_time");
      return { local, link: this.overLink((trips) => trips.connect) };
    }

    queryTime() {
      const local = required(at(this.profile.latency.furtherQuery, 1), "query_time");
      return { local, link: this.overLink((trips) => trips.query) };
    }

    sessionTime() {
      const { queriesPerConnection } = this.load;
      const { local, link } = this.connectTime();
      if (queriesPerConnection === 0) return { local, link };
      const queries = required(queriesOf(this.profile.latency, queriesPerConnection, 1), "query_time");
      const overLink = this.overLink((trips) => times(trips.query, queriesPerConnection));
      return { local: plus(local, queries), link: plus(link, overLink) };
    }

    overLink(trips) {
      if (this.load.rttNs === 0) return zero();
      return times(trips(required(this.profile.roundTrips, "round_trips")), this.load.rttNs);
    }

    timed({ local, link }) {
      const [localNs, linkNs] = [local, link].map((sum) => valueOf(sum).value);
      const linkError = Math.max(this.profile.roundTrips?.error ?? 0, model.linkError);
      const error = Math.hypot(model.modelError * localNs, linkError * linkNs) / (localNs + linkNs);
      return prediction(valueOf(plus(local, link)), error);
    }

    /** Most sessions per second: the clients' host is no limit. */
    throughput() {
      const used = positive(this.predicted(this.saturatedCpu("server")));
      return inverse(this.load.cores * 1e6, used);
    }

    saturatedCpu(role) {
      const concurrency = this.concurrency();
      const costs = this.profile.cpu[role];
      if (costs === undefined) return zero();
      const connect = required(at(costs.connect, concurrency), "connect");
      const queries = this.queriesCpu(role, concurrency);
      const { utilisation } = this.profile;
      return plus(times(connect, 1 / utilisation.connect), times(queries, 1 / utilisation.query));
    }
  }

  const positive = (estimate) => {
    if (estimate.value > 0) return estimate;
    throw new Missing("precision");
  };

  const inverse = (numerator, { value, low, high }) => {
    const limit = (limit) => {
      if (limit === null) return null;
      return limit > 0 ? numerator / limit : Infinity;
    };
    return { value: numerator / value, low: limit(high), high: limit(low) };
  };

  // ---- number.rs

  /** As Rust prints: halves that a binary number holds exactly are rounded to even. */
  const fixed = (value, decimals) => {
    const text = value.toFixed(decimals);
    const exact = Math.abs(value) < 1e15 ? value.toFixed(80) : "";
    const rest = exact.slice(exact.indexOf(".") + 1 + decimals);
    const lastDigit = Number(text[text.length - 1]);
    if (!/^50*$/.test(rest) || lastDigit % 2 === 0) return text;
    return text.slice(0, -1) + (lastDigit - 1);
  };

  /** Three significant digits, never in exponents. */
  const significant = (value) => {
    if (Math.abs(value) === Infinity) return "∞";
    let magnitude = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
    if (Math.abs(value) >= 10 ** (magnitude + 1) * 0.9995) magnitude += 1;
    return fixed(value, Math.min(Math.max(2 - magnitude, 0), 6));
  };

  const percent = (share) => {
    const percent = share * 100;
    if (percent < 0.1) return "0.1 %";
    const decimals = percent < 9.95 && Math.abs(percent - Math.round(percent)) > 0.049 ? 1 : 0;
    return `${fixed(percent, decimals)} %`;
  };

  const SCALES = {
    ns: [[1e9, " s"], [1e6, " ms"], [1e3, " µs"]],
    cpuUs: [[1e6, " s"], [1e3, " ms"], [1, " µs"]],
    perS: [[1e6, " M/s"], [1e3, " k/s"], [1, " /s"]],
    number: [[1, ""]],
  };
  const scale = (unit, value) => {
    const scales = SCALES[unit];
    return scales.find(([factor]) => value >= factor * 0.9995) ?? scales[scales.length - 1];
  };

  const uncertaintyIn = (factor, { value, low, high }) => {
    if (low === null) return "no interval";
    const halfWidth = Math.max(high - value, value - low) / value;
    if (halfWidth <= model.widestPlusMinus) return `±${percent(halfWidth)}`;
    return `${significant(low / factor)}–${significant(high / factor)}`;
  };

  // ---- costs/predictions.rs

  /** The lines of a field: a value over its interval. */
  const entry = (unit, found) => {
    if (found === undefined || found instanceof Missing) return ["–"];
    const [factor, name] = scale(unit, found.value);
    return [significant(found.value / factor) + name, uncertaintyIn(factor, found)];
  };

  const row = ({ connect, query, session, throughput, cpu, cores }) => [
    entry("ns", connect),
    entry("ns", query),
    entry("ns", session),
    entry("perS", throughput),
    entry("cpuUs", cpu.get("total")),
    ...["client", "middle", "server"].map((role) => entry("number", cores.get(role))),
  ];

  const missing = ({ connect, query, session, throughput, cpu }) => {
    const all = [connect, query, session, cpu.get("total"), throughput];
    const terms = new Set(all.filter((found) => found instanceof Missing).map(({ term }) => term));
    return [...missingWords.keys()].filter((term) => terms.has(term));
  };

  const notes = ({ calibration, profiles }, predictions, load) => {
    const labels = (is) => profiles.filter((_, index) => is(predictions[index])).map(({ label }) => label);
    const isLimited = ({ throughput }) => !(throughput instanceof Missing);
    const lines = [];
    const limited = labels(isLimited);
    if (limited.length > 0) {
      lines.push(`Limited by the server's cores: ${limited.join(", ")}.`);
      lines.push("Throughput assumes linear cores. Times are without waiting for a processor.");
    }
    const overloaded = labels((found) => isLimited(found) && found.throughput.value < load.connectsPerS);
    if (overloaded.length > 0) lines.push(`More than it can serve: ${overloaded.join(", ")}.`);
    const terms = [...new Set(predictions.flatMap(missing))];
    for (const term of terms) {
      const without = labels((found) => missing(found).includes(term));
      lines.push(`Not predicted for ${without.join(", ")}: the run lacks ${missingWords.get(term)}.`);
    }
    if (terms.some((term) => calibrated.has(term))) lines.push(`To measure what is missing: ${calibration}`);
    return lines;
  };

  // ---- the page

  const servers = model.servers.map(({ calibration, profiles }) => ({
    calibration,
    profiles: profiles.map(({ label, cpu, latency, roundTrips, utilisation }) => ({
      label,
      cpu: Object.fromEntries(Object.entries(cpu).map(([role, costs]) => [role, costsOf(costs)])),
      latency: costsOf(latency),
      roundTrips: roundTrips && {
        connect: sumOf(roundTrips.connect),
        query: sumOf(roundTrips.query),
        error: roundTrips.error,
      },
      utilisation,
    })),
  }));
  const blocks = [...panel.querySelectorAll("[data-predictions]")];
  const inputs = [...panel.querySelectorAll("input")];
  const command = document.getElementById("what-if-command");
  const status = document.getElementById("what-if-status");

  const created = (name, className, text) => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return element;
  };
  /** Without breaks, as in the rest of the page. */
  const unbroken = (text) => text.replaceAll(" ", "\u00a0").replaceAll("–", "–\u2060");

  const show = (load) => {
    servers.forEach((server, number) => {
      const predictions = server.profiles.map((profile) => new Predictor(profile, load).predict());
      const rows = blocks[number].querySelectorAll("tbody tr");
      predictions.forEach((found, index) => {
        const cells = rows[index].querySelectorAll("td");
        row(found).forEach(([value, interval = ""], column) => {
          const lines = [created("span", "value", unbroken(value)), created("span", "beside", unbroken(interval))];
          cells[column].replaceChildren(...lines.filter(({ textContent }) => textContent !== ""));
        });
      });
      const lines = notes(server, predictions, load).map((note) => created("p", "note", note));
      blocks[number].querySelector(".predicted-notes").replaceChildren(...lines);
    });
  };

  const isValid = (input, value) => value >= Number(input.min) && value <= Number(input.max);

  /** Whether every field is valid; otherwise the tables stay those of the last valid load. */
  const update = () => {
    for (const input of inputs) input.setAttribute("aria-invalid", String(!isValid(input, input.valueAsNumber)));
    const wrong = inputs.find((input) => input.getAttribute("aria-invalid") === "true");
    status.textContent = "";
    if (wrong !== undefined) {
      const { textContent } = wrong.labels[0];
      const range = `${textContent}: a number from ${wrong.min} to ${wrong.max}.`;
      status.textContent = `${range} The tables show the last valid load.`;
      return false;
    }
    const [connectsPerS, queriesPerConnection, rttMs, cores] = inputs.map((input) => input.valueAsNumber);
    show({ connectsPerS, queriesPerConnection, rttNs: rttMs * 1e6, cores });
    const options = inputs.map(({ dataset, valueAsNumber }) => ` ${dataset.option} ${valueAsNumber}${dataset.unit}`);
    command.textContent = command.dataset.start + options.join("");
    return true;
  };

  const FRAGMENT = "#what-if?";
  const readFragment = () => {
    if (!location.hash.startsWith(FRAGMENT)) return;
    const given = new URLSearchParams(location.hash.slice(FRAGMENT.length));
    for (const input of inputs) {
      const text = given.get(input.name) ?? "";
      if (/^\d+(\.\d+)?$/.test(text) && isValid(input, Number(text))) input.value = text;
    }
    document.getElementById("what-if").scrollIntoView({ behavior: "instant" });
  };

  panel.querySelector(".fields").hidden = false;
  panel.querySelector("[data-without-script]").hidden = true;
  for (const input of inputs) {
    input.addEventListener("input", () => {
      if (!update()) return;
      const load = new URLSearchParams(inputs.map(({ name, valueAsNumber }) => [name, valueAsNumber]));
      history.replaceState(null, "", FRAGMENT + load);
    });
  }
  addEventListener("hashchange", () => {
    readFragment();
    update();
  });
  readFragment();
  update();
}
