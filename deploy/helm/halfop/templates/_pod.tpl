{{/* What both pods share. */}}
{{- define "halfop.labels" -}}
app.kubernetes.io/name: halfop
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "halfop.pod" -}}
automountServiceAccountToken: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- define "halfop.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
env: [{name: HALFOP_WAREHOUSE, value: {{ .Values.warehouse.root | quote }}}]
{{- with .Values.environmentSecret }}
envFrom: [secretRef: {name: {{ . }}}]
{{- end }}
{{- end }}

{{- define "halfop.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /data}
{{- with .Values.gateway.tlsSecret }}
- {name: tls, mountPath: /etc/halfop/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "halfop.volumes" -}}
- name: tmp
  emptyDir: {}
- name: data
{{- if hasPrefix "/" .Values.warehouse.root }}
  persistentVolumeClaim: {claimName: {{ required "warehouse.claim: a warehouse in a folder needs a volume claim" .Values.warehouse.claim }}}
{{- else }}
  emptyDir: {}
{{- end }}
{{- with .Values.gateway.tlsSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    {{- if $.authorityAlone }}
    items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
{{- end }}
{{- end }}
