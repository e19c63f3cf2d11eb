// The search of the site. The configuration passes these functions to the page as text, so each is complete in itself.

/** Words with the same stem are the same to the search: fence, fences, fenced and fencing. */
function processTerm(term) {
  const word = term.toLowerCase().replace(/['’]s?$/u, '')
  if (word.length < 5 || /[^a-z]/.test(word)) return word
  const stem = word
    .replace(/(ss|sh|ch|x)es$/, '$1')
    .replace(/ies$/, 'y')
    .replace(/([^su])s$/, '$1')
    .replace(/(\w{3,})(?:ing|ed|er|or)$/, '$1')
    .replace(/([b-df-hj-np-tv-z])\1$/, '$1')
    .replace(/(\w{3,})e$/, '$1')
    .replace(/(\w{3,})y$/, '$1i')
  return stem
}

/**
 * A page that explains comes before a page that lists: generated references, records of decisions and changes have every word many times. The beginning of a page
 * comes before its sections.
 */
function boostDocument(id) {
  const path = id.replace(/^\//, '').replace(/#.*$/, '')
  const listing =
    /^(reference\/|CHANGELOG|CONTRIBUTING|decisions|numbers|performance|architecture|glossary|contents|index|file-format|guarantees|proofs)/.test(
      path,
    )
  const first = !id.includes('#') || /^[^#]*#([\w-]*)$/.exec(id)?.[1] === ''
  return (listing ? 0.35 : 1) * (first ? 1.5 : 1)
}

/** The options of the index: the same are used when it is built and when it is loaded. */
export const indexOptions = { processTerm }
export const searchOptions = { prefix: true, fuzzy: 0.15, combineWith: 'AND', boost: { title: 6, titles: 2, text: 1 }, boostDocument }
