// SPDX-License-Identifier: Apache-2.0
/*
 * Copies the pages to WORK/pages with links that suit the site, and writes the left-hand index to WORK/sidebar.json:
 *
 *   node stage.mjs ROOT WORK
 *
 * A link to another page becomes one of the site; a link to any other file of the repository becomes plain text, since the
 * site holds no sources. A link that leads nowhere, or to a heading that does not exist, is an error.
 */
import fs from 'node:fs'
import path from 'node:path'
import { slug } from './slug.mjs'

const [root, work] = process.argv.slice(2)
const errors = []

const list = (folder, filter) =>
  fs.readdirSync(path.join(root, folder)).filter(filter).map(name => path.posix.join(folder, name))
const byNumber = (a, b) => (parseInt(path.basename(a)) || 0) - (parseInt(path.basename(b)) || 0) || (a < b ? -1 : 1)
const guide = list('docs', name => name.endsWith('.md')).sort(byNumber)
const samples = list('samples', name => fs.existsSync(path.join(root, 'samples', name, 'README.md')))
  .map(folder => `${folder}/README.md`)
samples.unshift('samples/README.md')
const sources = ['README.md', ...guide, ...list('docs/reference', name => name.endsWith('.md')), ...samples,
  'benchmarks/RESULTS.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

const site = source => '/' + (source === 'README.md' ? 'index.md' : source.replace(/README\.md$/, 'index.md'))
// A link may be broken over two lines; pages are read line by line below.
const joined = page => page.replace(/\[([^\[\]\n]*)\n\s*([^\[\]\n]*)\]\(/g, '[$1 $2](')
const text = new Map(sources.map(source => [source, joined(fs.readFileSync(path.join(root, source), 'utf8'))]))

/** Calls for each line outside of fences, and returns the page. */
function outsideFences(page, each) {
  let fence = false
  return page.split('\n').map(line => {
    if (/^\s*```/.test(line)) fence = !fence
    return fence || /^\s*```/.test(line) || /^ {4}/.test(line) ? line : each(line)
  }).join('\n')
}

const anchors = new Map(sources.map(source => {
  const found = new Map()
  outsideFences(text.get(source), line => {
    const heading = /^#+\s+(.*)$/.exec(line)
    if (heading) {
      const name = slug(heading[1].replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]/g, ''))
      const times = found.get(name) ?? 0
      found.set(name, times + 1)
      if (times > 0) found.set(`${name}-${times}`, 1)
    }
    return line
  })
  return [source, found]
}))

function link(from, label, target) {
  if (/^[a-z]+:/.test(target)) return `[${label}](${target})`
  const [file, anchor] = target.split('#')
  let to = file === '' ? from : path.posix.normalize(path.posix.join(path.posix.dirname(from), file))
  to = to.replace(/\/$/, '')
  if (sources.includes(`${to}/README.md`)) to = `${to}/README.md`
  if (sources.includes(to)) {
    if (anchor && !anchors.get(to).has(anchor)) errors.push(`${from}: ${target}: ${to} has no heading #${anchor}`)
    return `[${label}](${site(to)}${anchor ? '#' + anchor : ''})`
  }
  if (!fs.existsSync(path.join(root, to))) errors.push(`${from}: ${target} does not exist`)
  return label
}

fs.rmSync(path.join(work, 'pages'), { recursive: true, force: true })
for (const source of sources) {
  const pictures = []
  const page = outsideFences(text.get(source), line => line
    // Vue would take them for its own.
    .replace(/\{\{/g, '&#123;&#123;')
    .replace(/(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)/g, (all, picture, label, target) => {
      if (!picture) return link(source, label, target)
      pictures.push(target)
      return all
    }))
  const to = path.join(work, 'pages', site(source))
  fs.mkdirSync(path.dirname(to), { recursive: true })
  fs.writeFileSync(to, page)
  for (const picture of pictures) {
    const file = path.join(root, path.dirname(source), picture)
    if (!fs.existsSync(file)) errors.push(`${source}: the picture ${picture} does not exist`)
    else {
      fs.mkdirSync(path.dirname(path.join(path.dirname(to), picture)), { recursive: true })
      fs.copyFileSync(file, path.join(path.dirname(to), picture))
    }
  }
}

const title = source => /^# (.*)$/m.exec(text.get(source))[1].replace(/`/g, '')
const item = source => ({ text: title(source), link: site(source).replace(/(index)?\.md$/, '') })
const numbered = numbers => guide.filter(page => numbers.includes(parseInt(path.basename(page))))
const groups = [
  ['Ten minutes to the first all-reduce', ['README.md', ...numbered([0, 1])]],
  ['Concepts', ['docs/architecture.md', 'docs/glossary.md', ...numbered([8, 21])]],
  ['Tutorials', [...numbered([2, 3, 5, 7, 4, 15, 18]), ...samples]],
  ['Coming from others', numbered([16, 20, 10, 11])],
  ['Operating', [...numbered([6, 9, 12, 13, 14, 17, 19]), 'SECURITY.md']],
  ['Reference', [...sources.filter(page => page.startsWith('docs/reference/')), 'benchmarks/RESULTS.md', 'CHANGELOG.md',
    'CONTRIBUTING.md']]
]
const grouped = groups.flatMap(([, pages]) => pages)
const others = guide.filter(page => !grouped.includes(page))
groups.find(([name]) => name === 'Operating')[1].push(...others)
const sidebar = groups.map(([name, pages]) => ({ text: name, collapsed: false, items: pages.map(item) }))
sidebar.at(-1).items.push({ text: 'Javadoc', link: '/javadoc/index.html', target: '_blank' })
fs.writeFileSync(path.join(work, 'sidebar.json'), JSON.stringify(sidebar, null, 2))

if (errors.length > 0) {
  console.error(errors.join('\n'))
  console.error(`${errors.length} links lead nowhere`)
  process.exit(1)
}
console.log(`${sources.length} pages, every link and heading found`)
