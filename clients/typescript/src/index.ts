export { Memrecall, Recall } from "./client.js";
export { MemrecallError, type ErrorCode } from "./errors.js";
export type { MemoriesApi } from "./memories.js";
export type { MessagesApi } from "./messages.js";
export type { components, operations, paths } from "./schema.js";
export type { AccessReason, AuditEntry, Invitation, Space, SpaceMember, SpaceRole, SpacesApi, Viewers } from "./spaces.js";
export type { Call, CallOptions, MemrecallConfig } from "./transport.js";
export type * from "./types.js";
