// The look of the site: the default theme with the colours of the dashboard.
import theme from 'vitepress/theme'
import './site.css'

export default theme
