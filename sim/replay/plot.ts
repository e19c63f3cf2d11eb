/** A bar chart as SVG, without dependencies: what each way of choosing terms costs, relative to the best single term. */

export interface Bar {
  readonly label: string
  readonly value: number
}

export interface BarGroup {
  readonly title: string
  readonly bars: readonly Bar[]
}

const WIDTH = 720
const ROW = 22
const LEFT = 190
const RIGHT = 70
/** In the middle of the scale, so that they can be seen on white and on black. */
const COLOURS = ['#3b82b8', '#7d9bb0', '#b3985a', '#b0693a'] as const

/** `unit` is the value of the line that is drawn across all bars. */
export function barChart(title: string, groups: readonly BarGroup[], unit: number): string {
  const most = Math.max(unit, ...groups.flatMap(({ bars }) => bars.map(({ value }) => value))) * 1.05
  const scale = (value: number) => ((WIDTH - LEFT - RIGHT) * value) / most
  const parts: string[] = []
  let y = 44
  for (const group of groups) {
    parts.push(`<text x="12" y="${y + 14}" font-weight="bold">${escaped(group.title)}</text>`)
    y += ROW
    for (const [i, { label, value }] of group.bars.entries()) {
      const colour = COLOURS[i % COLOURS.length]!
      parts.push(`<text x="${LEFT - 8}" y="${y + 14}" text-anchor="end">${escaped(label)}</text>`)
      parts.push(`<rect x="${LEFT}" y="${y + 3}" width="${scale(value).toFixed(1)}" height="${ROW - 7}" fill="${colour}"/>`)
      parts.push(`<text x="${(LEFT + scale(value) + 6).toFixed(1)}" y="${y + 14}">${value.toFixed(3)}</text>`)
      y += ROW
    }
    y += ROW / 2
  }
  const line = (LEFT + scale(unit)).toFixed(1)
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y + 10}" viewBox="0 0 ${WIDTH} ${y + 10}" font-family="sans-serif" font-size="12" role="img">`,
    `<title>${escaped(title)}</title>`,
    // No background: the text follows the colour scheme of the page.
    '<style>text { fill: #24292f } line { stroke: #57606a } @media (prefers-color-scheme: dark) { text { fill: #d0d7de } line { stroke: #9ea7b3 } }</style>',
    `<text x="12" y="24" font-size="15" font-weight="bold">${escaped(title)}</text>`,
    ...parts,
    `<line x1="${line}" y1="36" x2="${line}" y2="${y}" stroke-dasharray="4 3"/>`,
    '</svg>',
    '',
  ].join('\n')
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, char => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[char]!)
}
