import fs from 'node:fs'

const sidebar = JSON.parse(fs.readFileSync(new URL('sidebar.json', import.meta.url), 'utf8'))

export default {
  title: 'FluxCCL',
  description: 'GPU communication for the JVM, reactive from end to end',
  // Javadoc is copied in behind the build.
  ignoreDeadLinks: [/^\/api\//, /^\/source\//],
  themeConfig: {
    sidebar,
    outline: 'deep',
    search: { provider: 'local' },
    nav: [{ text: 'Javadoc', link: '/api/index.html', target: '_blank' }],
  },
  markdown: {
    languageAlias: { cuda: 'cpp' },
    config(md) {
      const fence = md.renderer.rules.fence
      md.renderer.rules.fence = (tokens, i, ...rest) =>
        tokens[i].info.trim() === 'mermaid'
          ? `<pre class="mermaid" v-pre>${md.utils.escapeHtml(tokens[i].content)}</pre>`
          : fence(tokens, i, ...rest)
    },
  },
}
