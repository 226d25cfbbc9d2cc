// SPDX-License-Identifier: Apache-2.0
import DefaultTheme from 'vitepress/theme'
import { nextTick, onMounted, watch } from 'vue'
import { useRoute } from 'vitepress'
import './style.css'

let pictures = 0
let drawing = Promise.resolve()

/** Draws the page's pictures one after the other, with the copy of Mermaid that the site has. */
async function draw() {
  await nextTick()
  if (!document.querySelector('pre.mermaid:not([data-drawn])')) return
  const { default: mermaid } = await import('mermaid')
  const dark = document.documentElement.classList.contains('dark')
  const size = { useMaxWidth: false }
  const theme = dark ? 'dark' : 'default'
  mermaid.initialize({ startOnLoad: false, theme, flowchart: size, sequence: size, state: size })
  for (const element of document.querySelectorAll('pre.mermaid:not([data-drawn])')) {
    element.dataset.drawn = 'true'
    // Ids of one's own: those of Mermaid are times, and two pictures drawn at once would share one.
    const { svg } = await mermaid.render(`picture-${pictures++}`, element.textContent)
    element.innerHTML = svg
  }
}

const drawNext = () => {
  drawing = drawing.then(draw).catch(error => console.error(error))
}

export default {
  extends: DefaultTheme,
  setup() {
    const route = useRoute()
    onMounted(drawNext)
    watch(() => route.path, drawNext)
  }
}
