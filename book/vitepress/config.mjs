// SPDX-License-Identifier: Apache-2.0
import fs from 'node:fs'
import { defineConfig } from 'vitepress'
import { slug } from './slug.mjs'

const sidebar = JSON.parse(fs.readFileSync(new URL('../sidebar.json', import.meta.url), 'utf8'))

/** A fence of mermaid becomes an element that the theme draws. */
function pictures(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, index, ...rest) =>
    tokens[index].info.trim() === 'mermaid'
      ? `<pre class="mermaid" v-pre>${md.utils.escapeHtml(tokens[index].content)}</pre>`
      : fence(tokens, index, ...rest)
}

export default defineConfig({
  title: 'FluxCCL',
  description: 'GPU communication for the JVM, reactive from end to end',
  srcDir: 'pages',
  cleanUrls: false,
  markdown: {
    anchor: { slugify: slug },
    languageAlias: { cuda: 'cpp' },
    config: pictures
  },
  vite: { build: { chunkSizeWarningLimit: 4000 } },
  themeConfig: {
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' }
  }
})
