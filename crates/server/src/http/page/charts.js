// Drawings of the last minute, on canvas.

const WINDOW = 60;
const LABEL_PX = 11;
const STEPS = [1, 2, 5, 10];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Values over time, drawn against an axis that begins at 0.
class Chart {
  constructor(canvas, format) {
    this.canvas = canvas;
    this.format = format;
    this.values = [];
  }

  add(at, value) {
    this.values.push({ at, value });
    while (this.values.length && this.values[0].at < at - WINDOW - 1) this.values.shift();
  }

  // The axis; gives back where things are.
  frame(now, top) {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const limit = Chart.round(top);
    const x = (at) => width * (1 - (now - at) / WINDOW);
    const y = (value) => height - 1 - (height - LABEL_PX - 4) * (value / limit);
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--quiet");
    pen.font = `${LABEL_PX}px system-ui, sans-serif`;
    pen.lineWidth = 1;
    for (const value of [0, limit / 2, limit]) {
      pen.beginPath();
      pen.moveTo(0, y(value));
      pen.lineTo(width, y(value));
      pen.stroke();
      if (value > 0) pen.fillText(this.format(value), 2, y(value) - 3);
    }
    return { pen, x, y, width, height };
  }

  static round(top) {
    const scale = 10 ** Math.floor(Math.log10(Math.max(top, 1e-6)));
    return scale * STEPS.find((step) => step * scale >= top * 0.999);
  }
}

export class Lines extends Chart {
  // `names` of the colours, one for each line.
  constructor(canvas, format, least, names) {
    super(canvas, format);
    this.least = least;
    this.names = names;
  }

  draw(now) {
    const known = this.values.flatMap(({ value }) => value.filter((one) => one !== null));
    const { pen, x, y } = this.frame(now, Math.max(this.least, ...known));
    pen.lineWidth = 1.8;
    this.names.forEach((name, index) => {
      pen.strokeStyle = colour(name);
      pen.beginPath();
      let isDown = false;
      for (const { at, value } of this.values) {
        if (value[index] === null) {
          isDown = false;
          continue;
        }
        if (isDown) pen.lineTo(x(at), y(value[index]));
        else pen.moveTo(x(at), y(value[index]));
        isDown = true;
      }
      pen.stroke();
    });
  }
}

// For each moment what was offered, pale, and in it what was sent, both as stacks of layers.
export class Stacks extends Chart {
  constructor(canvas, format, names) {
    super(canvas, format);
    this.names = names;
  }

  draw(now) {
    const total = (list) => list.reduce((sum, one) => sum + one, 0);
    const tops = this.values.map(({ value }) => total(value.offered));
    const { pen, x, y, width } = this.frame(now, Math.max(10, ...tops));
    this.values.forEach(({ at, value }, index) => {
      const next = this.values[index + 1]?.at ?? now;
      const wide = Math.max(1, x(next) - x(at) - 0.5);
      if (x(at) + wide < 0 || x(at) > width) return;
      let bottom = 0;
      value.offered.forEach((offered, layer) => {
        const sent = Math.min(value.sent[layer] ?? 0, offered);
        pen.fillStyle = colour(this.names[Math.min(layer, this.names.length - 1)]);
        pen.globalAlpha = 0.22;
        pen.fillRect(x(at), y(bottom + offered), wide, y(bottom) - y(bottom + offered));
        pen.globalAlpha = 1;
        pen.fillRect(x(at), y(bottom + sent), wide, y(bottom) - y(bottom + sent));
        bottom += offered;
      });
    });
  }
}
