for (const figure of document.querySelectorAll('figure.chart')) {
  const svg = figure.querySelector('svg'), cursor = svg.querySelector('.cursor');
  const series = JSON.parse(svg.dataset.series), tip = document.createElement('div');
  tip.className = 'tip'; tip.hidden = true; figure.append(tip);
  const hide = () => { tip.hidden = true; cursor.style.visibility = 'hidden'; };
  const show = event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const nearest = points => points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
    const at = nearest(series.flatMap(one => one.points)), lines = [];
    const title = document.createElement('b'); title.textContent = at[1]; lines.push(title);
    for (const one of series) {
      const point = one.points.find(each => each[0] === at[0]);
      if (!point) continue;
      const line = document.createElement('div'), dot = document.createElement('i');
      const words = document.createElement('span');
      line.className = 'c' + one.color; words.textContent = one.name + ': ' + point[2];
      line.append(dot, words); lines.push(line);
    }
    tip.replaceChildren(...lines); tip.hidden = false;
    cursor.setAttribute('x1', at[0]); cursor.setAttribute('x2', at[0]); cursor.style.visibility = 'visible';
    const inset = box.left - figure.getBoundingClientRect().left, wide = figure.clientWidth;
    const place = at[0] * box.width / svg.viewBox.baseVal.width + inset;
    tip.style.left = place < wide / 2 ? place + 12 + 'px' : 'auto';
    tip.style.right = place < wide / 2 ? 'auto' : wide - place + 12 + 'px';
  };
  svg.addEventListener('pointermove', show); svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
