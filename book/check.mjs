// SPDX-License-Identifier: Apache-2.0
/*
 * Checks the built site. Each page must exist. Each internal link in its HTML, including the Javadoc's, must lead to a
 * file and, after a #, to an element with that name.
 *
 *   node check.mjs PAGES SITE [without-javadoc]
 */
import fs from 'node:fs'
import path from 'node:path'

const [pages, site, javadoc] = process.argv.slice(2)
const errors = []
const files = new Set(fs.readdirSync(site, { recursive: true, withFileTypes: true })
  .filter(entry => entry.isFile())
  .map(entry => path.relative(site, path.join(entry.parentPath ?? entry.path, entry.name))))

for (const page of fs.readdirSync(pages, { recursive: true }).filter(name => name.endsWith('.md'))) {
  const html = page.replace(/md$/, 'html')
  if (!files.has(html)) errors.push(`${html} is missing`)
  else if (!/<h1/.test(fs.readFileSync(path.join(site, html), 'utf8'))) errors.push(`${html} has no heading`)
}

const plain = text => text.replace(/&amp;/g, '&').replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"')
const documents = new Map([...files].filter(file => file.endsWith('.html')).map(file => {
  const html = fs.readFileSync(path.join(site, file), 'utf8').replace(/<(script|style)\b[^>]*>.*?<\/\1>/gs, '<$1>')
  return [file, { html, names: new Set([...html.matchAll(/\s(?:id|name)="([^"]*)"/g)].map(match => plain(match[1]))) }]
}))

let links = 0
for (const [file, { html }] of documents) {
  for (const match of html.matchAll(/<[a-z][^>]*?\s(?:href|src)="([^"]*)"/g)) {
    const target = plain(match[1])
    if (target === '' || /^(?:[a-z]+:|\/\/)/i.test(target)) continue
    links++
    const url = new URL(target, `http://site/${file}`)
    let to = decodeURIComponent(url.pathname).slice(1)
    if (javadoc === 'without-javadoc' && to.startsWith('javadoc/')) continue
    if (to === '' || to.endsWith('/')) to += 'index.html'
    const name = decodeURIComponent(url.hash.slice(1))
    if (!files.has(to)) errors.push(`${file}: ${target}: there is no ${to}`)
    else if (name !== '' && documents.has(to) && !documents.get(to).names.has(name)) {
      errors.push(`${file}: ${target}: nothing in ${to} is called ${name}`)
    }
  }
}

if (errors.length > 0) {
  console.error(errors.slice(0, 40).join('\n'))
  console.error(`${errors.length} errors in the site`)
  process.exit(1)
}
console.log(`${documents.size} documents, ${links} links inside the site resolve`)
