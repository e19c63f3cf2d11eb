// Prints the pid of the host of this process: the end of a chain of processes.
import { hostProcess } from '../../dist/guard/host-process.js'

console.log(hostProcess()?.pid)
