import { path, type CallOptions, type Transport } from "./transport.js";

// The OpenAPI document does not describe these routes yet, so that the types are written by hand.
export type SpaceRole = "reader" | "writer" | "admin";

export interface Space {
  space_id: string;
  name?: string | null;
  role?: SpaceRole;
  [field: string]: unknown;
}

export interface SpaceMember {
  member: string;
  role: SpaceRole;
  [field: string]: unknown;
}

export interface AuditEntry {
  [field: string]: unknown;
}

export interface Promotion {
  /** Ids of the user's own memories that the space gets copies of. */
  memory_ids: string[];
  [field: string]: unknown;
}

/** Data that several users share. */
export class SpacesApi {
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Space[]> {
    return (await this.transport.json<{ results: Space[] }>("GET", "/v1/spaces", options)).results;
  }

  create(fields: { space_id: string; [field: string]: unknown }, options: CallOptions = {}): Promise<Space> {
    return this.transport.json("POST", "/v1/spaces", { ...options, body: fields });
  }

  get(spaceId: string, options: CallOptions = {}): Promise<Space> {
    return this.transport.json("GET", path`/v1/spaces/${spaceId}`, options);
  }

  delete(spaceId: string, options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.transport.json("DELETE", path`/v1/spaces/${spaceId}`, options);
  }

  async members(spaceId: string, options: CallOptions = {}): Promise<SpaceMember[]> {
    const answer = await this.transport.json<{ results: SpaceMember[] }>(
      "GET",
      path`/v1/spaces/${spaceId}/members`,
      options,
    );
    return answer.results;
  }

  /** Add a member, or change a member's role. */
  setMember(spaceId: string, member: string, role: SpaceRole, options: CallOptions = {}): Promise<SpaceMember> {
    const call = { ...options, body: { role }, repeatable: true };
    return this.transport.json("PUT", path`/v1/spaces/${spaceId}/members/${member}`, call);
  }

  removeMember(spaceId: string, member: string, options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.transport.json("DELETE", path`/v1/spaces/${spaceId}/members/${member}`, options);
  }

  /** Share memories of the user with the members of a space. */
  promote(spaceId: string, fields: Promotion, options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.transport.json("POST", path`/v1/spaces/${spaceId}/promote`, { ...options, body: fields });
  }

  async audit(spaceId: string, options: CallOptions = {}): Promise<AuditEntry[]> {
    const answer = await this.transport.json<{ results: AuditEntry[] }>(
      "GET",
      path`/v1/spaces/${spaceId}/audit`,
      options,
    );
    return answer.results;
  }
}
