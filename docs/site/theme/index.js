import { nextTick, onMounted, watch } from 'vue'
import { useRoute } from 'vitepress'
import DefaultTheme from 'vitepress/theme'

let drawn = 0

// Draws the pictures of a page. The library is part of the site: nothing is loaded from elsewhere.
async function draw() {
  await nextTick()
  const pictures = [...document.querySelectorAll('pre.mermaid')]
  if (pictures.length === 0) return
  const { default: mermaid } = await import('mermaid')
  mermaid.initialize({ startOnLoad: false })
  for (const picture of pictures) {
    const drawing = document.createElement('div')
    const text = picture.textContent
    picture.replaceWith(drawing)
    // Measured where it will stand, because the page's style counts.
    const { svg } = await mermaid.render(`picture-${drawn++}`, text, drawing)
    drawing.innerHTML = svg
  }
}

export default {
  extends: DefaultTheme,
  setup() {
    const route = useRoute()
    onMounted(draw)
    watch(() => route.path, draw)
  },
}
