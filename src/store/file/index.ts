/** `leasehold/store/file`: a log in a SQLite file. */
export { FileStore, type FileStoreOptions } from './file.ts'
