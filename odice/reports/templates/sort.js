for (const head of document.querySelectorAll('th')) head.querySelector('button').addEventListener('click', () => {
  const body = head.closest('table').tBodies[0], column = head.cellIndex;
  const down = head.getAttribute('aria-sort') !== 'descending', sign = down ? -1 : 1;
  const key = row => row.cells[column].dataset.sort, words = row => row.cells[column].textContent;
  for (const other of head.parentNode.cells) other.setAttribute('aria-sort', 'none');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  body.append(...[...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (x !== undefined && y !== undefined) return sign * (x - y);
    if (x === undefined && y === undefined) return -sign * words(a).localeCompare(words(b));
    return x === undefined ? 1 : -1;
  }));
});
