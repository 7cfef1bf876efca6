// Clipboard.

/** Copy a text; false if the browser does not allow it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text); // in pages of https and of this machine alone
    return true;
  } catch {
    return false;
  }
}
