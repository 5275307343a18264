import type { components } from "./schema.js";
import { path, type CallOptions, type Transport } from "./transport.js";

export type Space = components["schemas"]["Space"];
export type Invitation = components["schemas"]["Invitation"];
export type SpaceRole = "reader" | "contributor" | "admin";

export interface SpaceMember {
  /** A user, or `key:` and the id of a key. */
  member: string;
  role: SpaceRole;
  name: string | null;
  since: string;
  granted_by: string | null;
  kind: "user" | "key";
  /** Only admins see who is invited and has not accepted yet. */
  status: "member" | "invited";
}

/** Who can read a memory or message. */
export interface Viewers {
  id: string;
  owner: { kind: "user" | "space"; id: string };
  members: SpaceMember[];
  keys: { key_id: string; name: string; read_only: boolean }[];
}

/** Why the user can read a memory or message; what is said of a member is absent if it is their own. */
export interface AccessReason extends Partial<Pick<SpaceMember, "member" | "role" | "since" | "granted_by">> {
  id: string;
  space: string | null;
  reason: string;
  author?: string | null;
}

export interface AuditEntry {
  action: string;
  actor: string;
  target: string | null;
  at: string;
  [field: string]: unknown;
}

type Answer = Record<string, unknown>;

/** Data that several users share. */
export class SpacesApi {
  constructor(private readonly transport: Transport) {}

  list(options: CallOptions = {}): Promise<Space[]> {
    return this.results("/v1/spaces", options);
  }

  create(
    fields: { space_id: string; name?: string; description?: string },
    options: CallOptions = {},
  ): Promise<Space> {
    return this.transport.json("POST", "/v1/spaces", { ...options, body: fields });
  }

  get(spaceId: string, options: CallOptions = {}): Promise<Space> {
    return this.transport.json("GET", path`/v1/spaces/${spaceId}`, options);
  }

  /** Erase a space with everything in it; its name confirms it. */
  delete(spaceId: string, name: string, options: CallOptions = {}): Promise<Record<string, number>> {
    return this.transport.json("DELETE", path`/v1/spaces/${spaceId}`, { ...options, query: { name } });
  }

  members(spaceId: string, options: CallOptions = {}): Promise<SpaceMember[]> {
    return this.results(path`/v1/spaces/${spaceId}/members`, options);
  }

  /** Invite a user, or change a member's role or name; an operator's key for all users adds them at once. */
  setMember(
    spaceId: string,
    member: string,
    role: SpaceRole,
    options: CallOptions & { name?: string } = {},
  ): Promise<SpaceMember> {
    const { name, ...rest } = options;
    const call = { ...rest, body: { role, ...(name === undefined ? {} : { name }) }, repeatable: true };
    return this.transport.json("PUT", path`/v1/spaces/${spaceId}/members/${member}`, call);
  }

  /** The spaces that the user is invited to. */
  invitations(options: CallOptions = {}): Promise<Invitation[]> {
    return this.results("/v1/invitations", options);
  }

  /** Join a space that the user is invited to. */
  accept(spaceId: string, options: CallOptions = {}): Promise<Space> {
    return this.transport.json("POST", path`/v1/invitations/${spaceId}/accept`, options);
  }

  decline(spaceId: string, options: CallOptions = {}): Promise<Answer> {
    return this.transport.json("POST", path`/v1/invitations/${spaceId}/decline`, options);
  }

  /** Remove a member, or withdraw an invitation; a user may remove themselves: they leave. */
  removeMember(spaceId: string, member: string, options: CallOptions = {}): Promise<Answer> {
    return this.transport.json("DELETE", path`/v1/spaces/${spaceId}/members/${member}`, options);
  }

  /** Copy a memory of the user to a space; promoting it again gives the same copy. */
  promote(spaceId: string, memoryId: string, options: CallOptions = {}): Promise<Answer> {
    const call = { ...options, body: { memory_id: memoryId }, repeatable: true };
    return this.transport.json("POST", path`/v1/spaces/${spaceId}/promote`, call);
  }

  /** Take a copy back that the user promoted. */
  demote(spaceId: string, memoryId: string, options: CallOptions = {}): Promise<Answer> {
    return this.transport.json("POST", path`/v1/spaces/${spaceId}/demote`, { ...options, body: { memory_id: memoryId } });
  }

  /** Who changed what in a space, the latest first. */
  audit(spaceId: string, options: CallOptions = {}): Promise<AuditEntry[]> {
    return this.results(path`/v1/spaces/${spaceId}/audit`, options);
  }

  private async results<Item>(address: string, options: CallOptions): Promise<Item[]> {
    return (await this.transport.json<{ results: Item[] }>("GET", address, options)).results;
  }
}
