// A coding agent as a process: it starts an MCP server, hooks and a shell as hosts do. Questions come as lines of JSON, and each is answered with one line.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

const [folder] = process.argv.slice(2)
let client

async function answer({ mcp, call, args, run, input }) {
  if (mcp !== undefined) {
    client = new Client({ name: 'host', version: '1.0.0' })
    const [command, ...rest] = mcp.split(' ')
    await client.connect(new StdioClientTransport({ command, args: rest, cwd: folder, env: process.env, stderr: 'ignore' }))
    return {}
  }
  if (call !== undefined) return (await client.callTool({ name: call, arguments: args })).structuredContent
  const child = spawn('sh', ['-c', run], { cwd: folder })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', text => (stdout += text))
  child.stderr.on('data', text => (stderr += text))
  child.stdin.on('error', () => {})
  child.stdin.end(input)
  const code = await new Promise(resolve => child.on('close', resolve))
  return { code, stdout, stderr }
}

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await answer(JSON.parse(line))))
await client?.close()
