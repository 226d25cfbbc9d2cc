// Copies the documentation's pages into a folder, as VitePress wants them: README.md becomes index.md, links to folders
// become links to their README.md, and files that are no pages are copied beside. Fails if a page is in no group.
//
//   node prepare.mjs REPOSITORY FOLDER
import fs from 'node:fs'
import path from 'node:path'

const [repository, target] = process.argv.slice(2)
const groups = JSON.parse(fs.readFileSync(path.join(repository, 'docs/site/groups.json'), 'utf8'))
const listed = groups.flatMap((group) => group.pages)
const samples = fs.readdirSync(path.join(repository, 'samples')).map((name) => `samples/${name}/README.md`)
const pages = new Set([...listed, ...samples.filter((page) => fs.existsSync(path.join(repository, page)))])

const found = ['docs', 'docs/reference'].flatMap((folder) =>
  fs.readdirSync(path.join(repository, folder)).filter((name) => name.endsWith('.md')).map((name) => `${folder}/${name}`))
const forgotten = found.filter((page) => !pages.has(page))
if (forgotten.length > 0) {
  throw new Error(`in no group of docs/site/groups.json: ${forgotten.join(', ')}`)
}

const placeOf = (page) => page.replace(/README\.md$/, 'index.md')

function linkTo(page, link) {
  const [place, anchor] = link.split('#')
  if (/^[a-z]+:/.test(link) || place === '') return link
  let wanted = path.posix.normalize(path.posix.join(path.posix.dirname(page), place)).replace(/\/$/, '')
  if (pages.has(`${wanted}/README.md`)) wanted += '/README.md'
  const from = path.posix.dirname(placeOf(page))
  if (pages.has(wanted)) {
    return path.posix.relative(from, placeOf(wanted)) + (anchor ? `#${anchor}` : '')
  }
  const file = path.join(repository, wanted)
  if (!fs.existsSync(file)) throw new Error(`${page} links to ${link}, which is not there`)
  if (fs.statSync(file).isDirectory()) throw new Error(`${page} links to ${link}, a folder without a README.md`)
  const asText = /\.(png|svg)$/.test(wanted) ? wanted : `source/${wanted}.txt`
  const copy = path.join(target, 'public', asText)
  fs.mkdirSync(path.dirname(copy), { recursive: true })
  fs.copyFileSync(file, copy)
  return `/${asText}`
}

fs.rmSync(target, { recursive: true, force: true })
for (const page of pages) {
  const text = fs.readFileSync(path.join(repository, page), 'utf8')
  // Code stays as it is: only what is outside of fences and `ticks` has links.
  const parts = text.split(/(^```[\s\S]*?^```$|`[^`\n]+`|^ {4}.*$)/m)
  const linked = parts
    .map((part, i) => (i % 2 ? part : part.replace(/(!?\[[^\]]*\]\()([^)\s]+)\)/g, (all, label, link) => `${label}${linkTo(page, link)})`)))
    .join('')
  const place = path.join(target, placeOf(page))
  fs.mkdirSync(path.dirname(place), { recursive: true })
  fs.writeFileSync(place, linked)
}

const item = (page) => {
  const title = /^# (.*)$/m.exec(fs.readFileSync(path.join(repository, page), 'utf8'))[1]
  return { text: title, link: `/${placeOf(page)}` }
}
const sidebar = groups.map((group) => ({ text: group.text, items: group.pages.map(item) }))
sidebar.push({ text: 'Javadoc', link: '/api/index.html', target: '_blank' })
fs.mkdirSync(path.join(target, '.vitepress'), { recursive: true })
fs.writeFileSync(path.join(target, '.vitepress/sidebar.json'), JSON.stringify(sidebar, null, 1))
fs.copyFileSync(path.join(repository, 'docs/site/config.mjs'), path.join(target, '.vitepress/config.mjs'))
fs.cpSync(path.join(repository, 'docs/site/theme'), path.join(target, '.vitepress/theme'), { recursive: true })
